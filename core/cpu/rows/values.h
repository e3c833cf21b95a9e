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
/// because a mask leaves a key out, and 0 times NaN is NaN. So PV leaves out
/// what is not finite among values, and a second sweep over the tiles that hold
/// such values adds it to the rows in which their keys take part.
class Values {
 public:
  /// Takes its memory from `scratch`; the others outlive it.
  Values(const ValidatedProblem& problem, const Plan& plan,
         const Kernels& kernels, Pass pass, Scratch& scratch);

  /// Fills in the values of args.packed, or of args.bf16.
  void SetPacked(const BlockRows& rows, const KeyTile& tile, TileArgs& args);

  /// The keys of a tile whose values are not all finite, for the second sweep;
  /// good until the next call.
  NonFiniteArgs FindNonFinite(const BlockRows& rows, const KeyTile& tile);

  /// Whether one was met in any tile; a split tells the others' merge.
  bool met_non_finite() const { return met_non_finite_; }
  /// Where the kernels tell of one.
  bool* WatchNonFinite() { return &met_non_finite_; }
  void SetMetNonFinite() { met_non_finite_ = true; }

 private:
  void SetBf16(const TileRows& values, TileArgs& args);
  int64_t SetAhead(const TileRows& values);

  const ValidatedProblem& problem_;
  const Plan& plan_;
  const Kernels& kernels_;
  const int64_t terms_;  // of BF16; 0: values are FP32
  int64_t stride_;       // of values_
  float* values_ = nullptr;
  const float** places_ = nullptr;  // where the values of each key begin
  float* bf16_rows_ = nullptr;      // of those that lie otherwise
  const unsigned char** bf16_places_ = nullptr;
  float* bf16_values_ = nullptr;
  float* bf16_weights_ = nullptr;
  bool met_non_finite_ = false;
  int32_t* non_finite_keys_;
  RowSource* non_finite_rows_;
  float* line_;  // one key's values
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_VALUES_H_
