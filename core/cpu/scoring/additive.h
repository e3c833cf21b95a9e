#ifndef ATTENTION_CORE_CPU_SCORING_ADDITIVE_H_
#define ATTENTION_CORE_CPU_SCORING_ADDITIVE_H_

#include <cstdint>

#include "core/cpu/scoring/packed_scoring.h"
#include "core/cpu/scoring/projection.h"
#include "core/cpu/scoring/row_widener.h"

namespace attention::cpu {

/// w_v . tanh(q W_q + k W_k), with tanh(x) = 1 - 2 / (e^(2 x) + 1) and e^(2 (q
/// + k)) as a product of an exponential of each query and one of each key. The
/// sum of w_v, which 1 stands for, cancels in the softmax.
///
/// Where projections are so large that one of these would leave FP32's range
/// (beyond +-40, where tanh of one alone has long been +-1), exponents are kept
/// apart (Score::kTanhWide).
class AdditiveScoring final : public PackedScoring {
 public:
  AdditiveScoring(const ValidatedProblem& problem, const Plan& plan,
                  const Kernels& kernels, Scratch& scratch);

  void SetQueries(const BlockRows& rows, const KeyRange& attended) override;
  double LogSumExpShift(int64_t row) const override;

 private:
  void SetParameters(int64_t head);
  void PackKeys(const TileRows& keys, const Part& part, float* packed,
                TileArgs& args) override;
  void PackQueries(const Part& part, Score form);
  // Rows of a part as exponentials, pairs of numbers for kTanhWide.
  FloatRows Exponentials(const FloatRows& rows, int64_t count, int64_t width,
                         Score form);

  RowWidener queries_;
  RowWidener keys_;
  Projection w_q_;
  Projection w_k_;
  int64_t query_stride_;
  int64_t part_stride_;
  float* projected_queries_;  // all of them, query_stride_ apart
  float* projected_keys_;     // a part
  float* exponentials_;
  float* w_v_;
  float* row_addend_;
  Score* forms_;  // of the packed queries, per part
  double w_v_sum_ = 0;
  double w_v_scale_ = 1;
  float largest_query_ = 0;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_ADDITIVE_H_
