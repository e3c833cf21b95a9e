#ifndef ATTENTION_CORE_CPU_WIDE_MASKS_H_
#define ATTENTION_CORE_CPU_WIDE_MASKS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/cpu/kernels.h"
#include "core/cpu/key_tile.h"
#include "core/cpu/row_id.h"
#include "core/cpu/scratch.h"
#include "core/philox.h"
#include "core/validate.h"

namespace attention::cpu {

/// What the FP64 kernels add to the scores of a group of rows (bias and mask)
/// and multiply their weights by (dropout).
class WideMasks {
 public:
  /// Takes its memory from `scratch`. The others outlive it.
  WideMasks(const ValidatedProblem& problem, const Kernels& kernels,
            Scratch& scratch);

  /// Of a group: at most kWideRows rows of `batch`, whose ranges in the tile
  /// `args` has.
  void SetAddends(int64_t batch, absl::Span<const RowId> rows,
                  const KeyTile& tile, WideArgs& args);
  void SetDropout(int64_t batch, absl::Span<const RowId> rows,
                  const KeyTile& tile, WideArgs& args);

  /// What dropout multiplies a weight by.
  double DropoutFactor(int64_t batch, RowId row, int64_t key) const;

 private:
  void SetBias(int64_t batch, RowId row, const KeyTile& tile, double* to);
  void SetMask(int64_t batch, RowId row, const KeyTile& tile, double* to) const;

  const ValidatedProblem& problem_;
  const Kernels& kernels_;
  const DropoutPattern dropout_;
  double* addends_;
  double* kept_;
  float* narrow_;  // a row of the bias on its way to FP64
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_WIDE_MASKS_H_
