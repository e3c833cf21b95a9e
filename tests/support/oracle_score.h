#ifndef ATTENTION_TESTS_SUPPORT_ORACLE_SCORE_H_
#define ATTENTION_TESTS_SUPPORT_ORACLE_SCORE_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/problem.h"

namespace attention::test {

/// FP32's range as the contract has it: what is not 0 and smaller than the
/// first may count as 0, and what is larger than the second may be infinite
/// before the computation is over (FP32 itself ends at 2^128).
inline constexpr double kVanishing = 0x1p-126;
inline constexpr double kOverflowing = 0x1p126;

bool Vanishes(double number);
/// False of infinities: what is infinite to begin with does not overflow.
bool Overflows(double magnitude);

/// A scoring function's value, and what FP32 may make of it.
struct Score {
  double value = 0;
  /// Of what is added up (the table under "Tolerances" of the contract).
  double magnitude = 0;
  /// By how much the value may be off because something in it counts as 0.
  double lost = 0;
  /// FP32 may overflow on the way to it.
  bool overflows = false;
};

/// A query or a key of one head, multiplied with the parameters that it meets:
/// once, for every pair needs it.
struct ScoreOperand {
  std::vector<double> row;
  std::vector<double> projection = {};  // additive: row W; bilinear: row M
  std::vector<double> magnitude = {};   // of the projection: sum of |terms|
  std::vector<double> lost = {};        // of the projection, as in Score
  bool overflows = false;
  bool vanishes = false;  // something in the row, a scaled query's too
};

/// a(q, k) for every query and key of a problem.
class Scorer {
 public:
  explicit Scorer(const Scoring& scoring) : scoring_(scoring) {}

  ScoreOperand Query(int64_t head, std::vector<double> row) const;
  ScoreOperand Key(int64_t head, std::vector<double> row) const;
  Score Compute(int64_t head, const ScoreOperand& q,
                const ScoreOperand& k) const;
  /// g: how much more than one rounding a chain of so many terms costs.
  double Growth(int64_t query_width, int64_t key_width) const;

 private:
  // A head's matrix or vector, row-major.
  const std::vector<float>& Parameter(const TensorView& view,
                                      int64_t head) const;
  void Project(const std::vector<float>& matrix, double scale,
               ScoreOperand& operand) const;

  Score Of(const ScaledDotProduct& dot, int64_t head, const ScoreOperand& q,
           const ScoreOperand& k) const;
  Score Of(const Additive& additive, int64_t head, const ScoreOperand& q,
           const ScoreOperand& k) const;
  Score Of(const Gaussian& gaussian, int64_t head, const ScoreOperand& q,
           const ScoreOperand& k) const;
  Score Of(const Bilinear& bilinear, int64_t head, const ScoreOperand& q,
           const ScoreOperand& k) const;

  const Scoring& scoring_;
  mutable std::map<std::pair<const TensorView*, int64_t>, std::vector<float>>
      parameters_;
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_ORACLE_SCORE_H_
