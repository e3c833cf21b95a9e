#ifndef ATTENTION_CORE_CPU_ROWS_ROW_MASKS_H_
#define ATTENTION_CORE_CPU_ROWS_ROW_MASKS_H_

#include <cstdint>

#include "core/cpu/block_rows.h"
#include "core/cpu/kernels/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/rows/key_tile.h"
#include "core/cpu/scoring/scoring.h"
#include "core/cpu/scratch.h"
#include "core/philox.h"
#include "core/validate.h"

namespace attention::cpu {

/// What the epilogue is given of masks, bias and ALiBi for the rows of a block,
/// and what dropout is. Which keys take part is up to the scores that come of
/// it: one of -inf takes none.
class RowMasks {
 public:
  /// Takes its memory from `scratch`; the others outlive it. For Pass::kUniform
  /// all keys take part in all rows, and for scores that no mask has met.
  RowMasks(const ValidatedProblem& problem, const Plan& plan,
           const BlockRows& rows, Pass pass, Scratch& scratch);

  /// Reads the problem's masks for the rows; before anything else. `args` is
  /// given what does not change from tile to tile.
  void SetRows(TileArgs& args);

  /// Gives `args` what the rows' ranges are within a tile.
  void SetTile(const KeyTile& tile, TileArgs& args);

  /// Spans the ranges of all rows; begin >= end where they are empty.
  const KeyRange& all() const { return all_; }

 private:
  void SetAlibi();
  void SetElements(const TensorView& view, const unsigned char** rows) const;
  static void FillDropout(const void* context, int64_t row, int64_t first_key,
                          int64_t count, float* factors);

  const ValidatedProblem& problem_;
  const BlockRows& rows_;
  const bool all_keys_;
  DropoutPattern dropout_;
  KeyRange all_;
  // Of each row.
  KeyRange* ranges_;
  int32_t* begin_;  // of its range, within the tile
  int32_t* end_;
  float* alibi_slopes_;
  double* positions_;       // as RowPosition() has them
  float* alibi_positions_;  // within the tile
  const unsigned char** mask_rows_;
  const unsigned char** bias_rows_;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_ROW_MASKS_H_
