#ifndef ATTENTION_CORE_CPU_ROWS_VALUES_H_
#define ATTENTION_CORE_CPU_ROWS_VALUES_H_

#include <cstdint>

#include "core/cpu/block_rows.h"
#include "core/cpu/kernels/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/rows/key_tile.h"
#include "core/cpu/scoring/scoring.h"
#include "core/cpu/scratch.h"
#include "core/validate.h"

namespace attention::cpu {

/// The values of a tile of keys in the form that PV reads: where they lie, if
/// it can read them so, else in scratch.
///
/// PV multiplies the values of all keys of a tile, also by weights that are 0
/// because a mask leaves a key out, and 0 times NaN is NaN. So it leaves out
/// what is not finite among values, which is then added to the rows in which
/// their keys take part.
class Values {
 public:
  /// Takes its memory from `scratch`; the others outlive it.
  Values(const ValidatedProblem& problem, const Plan& plan,
         const Kernels& kernels, Pass pass, Scratch& scratch);

  /// Fills in the values of args.packed, or of args.bf16.
  void SetPacked(const BlockRows& rows, const KeyTile& tile, TileArgs& args);

  /// Whether a value of any tile was not finite; the kernels tell it, too.
  bool* met_non_finite() { return &met_non_finite_; }

 private:
  RowSource SideBySide(const RowSource& from, int64_t first, int64_t count);
  void SetBf16(const TileRows& values, TileArgs& args);

  const ValidatedProblem& problem_;
  const Plan& plan_;
  const Kernels& kernels_;
  const int64_t terms_;  // of BF16; 0: values are FP32
  int64_t stride_;       // of values_
  float* values_ = nullptr;
  const float** places_ = nullptr;  // where the values of each key begin
  float* bf16_rows_ = nullptr;      // of those that lie otherwise, and of bytes
  const unsigned char** bf16_places_ = nullptr;
  float* bf16_values_ = nullptr;
  float* scales_ = nullptr;  // what values of one byte have left of theirs
  float* bf16_weights_ = nullptr;
  bool met_non_finite_ = false;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_VALUES_H_
