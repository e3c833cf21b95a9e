#ifndef ATTENTION_CORE_CPU_ROWS_BLOCK_STATES_H_
#define ATTENTION_CORE_CPU_ROWS_BLOCK_STATES_H_

#include <cstdint>

#include "core/cpu/kernels/tile_args.h"
#include "core/cpu/plan.h"
#include "core/cpu/scoring/score_unit.h"
#include "core/cpu/scratch.h"
#include "core/softmax_state.h"

namespace attention::cpu {

/// The softmax states of a block's rows and their weighted values, in the form
/// that the kernels keep them in.
class BlockStates {
 public:
  /// Takes its memory from `scratch`; there is room for `padded_rows` rows of
  /// weighted values.
  BlockStates(const Plan& plan, int64_t padded_rows, const ScoreUnit& unit,
              Scratch& scratch);

  /// `rows` rows without a key.
  void Clear(int64_t rows);

  RowStates ForKernels() const;
  float exponent() const { return unit_.Exponent(); }
  double* sum() const { return sum_; }
  float* output() const { return output_; }

  /// A row's state with natural scores.
  SoftmaxState<double> Natural(int64_t row) const {
    return {unit_.Natural(max_[row]), sum_[row]};
  }

  /// Puts a split's states at `to`, a row's plan.partial_floats() apart.
  void StoreSplit(int64_t rows, float* to) const;
  /// Merges, in order, what StoreSplit() has put there for `splits` splits.
  void MergeSplits(int64_t rows, int64_t splits, const float* from);

 private:
  const Plan& plan_;
  int64_t padded_rows_;
  ScoreUnit unit_;
  float* max_;
  double* sum_;
  float* output_;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_BLOCK_STATES_H_
