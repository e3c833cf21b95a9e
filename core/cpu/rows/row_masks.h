#ifndef ATTENTION_CORE_CPU_ROWS_ROW_MASKS_H_
#define ATTENTION_CORE_CPU_ROWS_ROW_MASKS_H_

#include <cstdint>

#include "core/cpu/kernels/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/rows/block_rows.h"
#include "core/cpu/rows/key_tile.h"
#include "core/cpu/scoring/scoring.h"
#include "core/cpu/scratch.h"
#include "core/philox.h"
#include "core/validate.h"

namespace attention::cpu {

/// Which keys take part in which rows of a block, and which weights dropout
/// takes away: the one place of core/cpu that knows masks, beside what
/// epilogue-inl.h does to scores.
class RowMasks {
 public:
  /// Takes its memory from `scratch`; the others outlive it. For Pass::kUniform
  /// all keys take part in all rows.
  RowMasks(const ValidatedProblem& problem, const Plan& plan,
           const BlockRows& rows, Pass pass, Scratch& scratch);

  /// Reads the problem's masks for the rows; before anything else. `args` is
  /// given what does not change from tile to tile.
  void SetRows(TileArgs& args);

  /// Gives `args` what the rows' ranges are within a tile.
  void SetTile(const KeyTile& tile, TileArgs& args);

  /// Spans the ranges of all rows; begin >= end where they are empty.
  const KeyRange& all() const { return all_; }

  /// Whether a key has a weight other than 0 in a row, its score aside.
  bool Weighs(int64_t row, int64_t key) const;

 private:
  bool TakesPart(int64_t row, int64_t key) const;
  void SetAlibi();
  void SetElements(const TensorView& view, const unsigned char** rows) const;
  static void FillDropout(const void* context, int64_t row, int64_t first_key,
                          int64_t count, float* factors);

  const ValidatedProblem& problem_;
  const BlockRows& rows_;
  const bool uniform_;
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

/// Keys that the rows of a block may attend, or, without windows, any row of
/// their batch entry: what is taken from among them does not follow from how
/// many rows a block has. Some row of the block attends a key.
KeyRange KeysOfBlock(const ValidatedProblem& problem, const BlockRows& rows);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_ROW_MASKS_H_
