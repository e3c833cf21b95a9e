#ifndef ATTENTION_CORE_CPU_PREPARE_H_
#define ATTENTION_CORE_CPU_PREPARE_H_

#include <array>
#include <cstdint>

#include "core/cpu/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/scratch.h"
#include "core/validate.h"

namespace attention::cpu {

/// Keys that the centre of Gaussian scoring is taken from.
inline constexpr int64_t kCentreKeys = 3;

/// The kernels' name of an element type that attention has.
Element ElementOf(DataType type);

/// Rows first ... of head (b, h) of a four-dimensional view.
RowSource RowsOf(const TensorView& view, int64_t batch, int64_t head,
                 int64_t first);

/// The row of key `key`, whatever block it is in.
RowSource KeyRow(const ValidatedProblem& problem, int64_t batch,
                 int64_t kv_head, int64_t key);

/// One head's part of a parameter: the rows of a (Hq, rows, columns) view, or
/// a (Hq, columns) view as one row.
RowSource ParameterRows(const TensorView& view, int64_t head);
RowSource ParameterVector(const TensorView& view, int64_t head);

/// Brings queries and keys of one block of rows into the form that the first
/// product reads, whatever the scoring function: a dot product of packed
/// vectors, plus what each key and each row adds.
class Prepare {
 public:
  /// Takes its memory from `scratch`. `head` is a query head of the lane.
  Prepare(const ValidatedProblem& problem, const Plan& plan,
          const Kernels& kernels, Scratch& scratch);

  /// Parameters of query head `head`; called once, before the queries.
  void SetHead(int64_t head);

  /// Gaussian scoring by a dot product: the point that is subtracted from
  /// queries and keys. In every direction it is the median of three keys, so
  /// that one which lies far from the others does not move it.
  void SetCentre(const std::array<RowSource, kCentreKeys>& keys);

  /// Reads all queries of the block where they lie, `queries` being the first;
  /// false, and nothing done, where they are not rows of floats.
  bool UseQueries(const RowSource& queries);
  /// Otherwise: widens `count` queries into row `first_row` ... of the block.
  void AddQueries(const RowSource& queries, int64_t first_row, int64_t count);
  /// After the last of them.
  void PackQueries(int64_t rows);

  /// In place of all that, for a dot product of queries that are not packed
  /// here.
  void SkipQueries(int64_t rows);
  /// What makes the scores of a dot product, in the epilogue's units, of
  /// queries and keys as they are given.
  float DotFactor() const;

  /// Packs a tile of keys.
  void PackKeys(const RowSource& keys, int64_t count);

  /// In place of PackKeys for a plan that decodes: keys as they lie in memory,
  /// or widened to FP32 in scratch.
  void SetKeyRows(const RowSource& keys, int64_t count, bool widen,
                  TileArgs& args);

  /// Fills in what the first product and the epilogue need for the tile that
  /// was packed last.
  void Fill(TileArgs& args) const;

  /// What is added to a row's log-sum-exp, natural; 0 for most.
  double LogSumExpShift(int64_t row) const;

  /// The sum of the magnitudes of a score's terms, as the tolerances count
  /// them, or a little less, of a key in FP32.
  double ScoreMagnitude(int64_t row, const float* key) const;

  /// What that sum cannot exceed, per unit of the key's largest element; for
  /// additive scoring the sum itself, whatever the key. Infinite for Gaussian
  /// scoring, which has no such bound.
  double MagnitudePerElement(int64_t row) const;

  /// Gaussian scoring by a dot product: -a(query, centre).
  double DistanceFromCentre(int64_t row) const { return -row_shift_[row]; }

 private:
  double Unit() const;
  const float* ProjectedQuery(int64_t row) const;
  const float* WidenKeys(const RowSource& keys, int64_t count, int64_t& stride);
  void ProjectRows(const float* rows, int64_t stride, int64_t count,
                   int64_t width, const float* m, float* high, float* low);
  void Centre(const float* rows, int64_t stride, int64_t count, float* to,
              int64_t to_stride, double* squared_norms);
  void PackGaussianKeys(const float* rows, int64_t stride, int64_t count);
  void PackAdditiveKeys(const float* rows, int64_t stride, int64_t count);
  // High and low parts side by side.
  void Interleave(const float* high, const float* low, int64_t count,
                  float* pairs) const;
  // The least limit that no projection passes; infinite for very large ones.
  float LargestOf(const float* projections, int64_t count) const;

  const ValidatedProblem& problem_;
  const Plan& plan_;
  const Kernels& kernels_;

  int64_t query_stride_ = 0;
  int64_t key_stride_ = 0;
  int64_t projected_stride_ = 0;
  float* query_rows_ = nullptr;
  const float* queries_ = nullptr;  // the block's, widened
  int64_t queries_stride_ = 0;
  float* projected_queries_ = nullptr;
  float* projected_queries_low_ = nullptr;
  float* exponentials_ = nullptr;
  float* packed_queries_ = nullptr;
  float* row_queries_ = nullptr;
  float* exact_queries_ = nullptr;
  float* query_pairs_ = nullptr;
  float* row_addend_ = nullptr;
  double* row_shift_ = nullptr;
  float* centre_ = nullptr;
  float* key_rows_ = nullptr;
  float* projected_keys_ = nullptr;
  float* projected_keys_low_ = nullptr;
  float* key_exponentials_ = nullptr;
  float* key_pairs_ = nullptr;
  float* packed_keys_ = nullptr;
  float* key_addend_ = nullptr;
  double* key_norms_ = nullptr;
  float* w_q_ = nullptr;
  float* w_k_ = nullptr;
  float* w_v_ = nullptr;
  double* wide_ = nullptr;

  int64_t rows_ = 0;
  double w_v_sum_ = 0;
  float largest_query_ = 0;
  float largest_parameter_ = 0;  // infinite where w_v is too large
  double w_v_magnitude_ = 0;
  bool exact_packed_ = false;
  Score additive_ = Score::kTanh;  // of the tile packed last
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_PREPARE_H_
