#ifndef ATTENTION_CORE_CPU_WIDE_OPERANDS_H_
#define ATTENTION_CORE_CPU_WIDE_OPERANDS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/cpu/kernels.h"
#include "core/cpu/key_tile.h"
#include "core/cpu/row_id.h"
#include "core/cpu/scratch.h"
#include "core/validate.h"

namespace attention::cpu {

/// What the FP64 kernels score and weigh: the queries of a few rows, the keys
/// and values of a tile, projected where the scoring function does so, in
/// groups of kWideRows rows.
class WideOperands {
 public:
  /// Takes its memory from `scratch`. The others outlive it. `row_block` is how
  /// many rows there may be, more or less.
  WideOperands(const ValidatedProblem& problem, const Kernels& kernels,
               int64_t row_block, Scratch& scratch);

  /// Rows at once, a multiple of kWideRows.
  int64_t most_rows() const { return most_rows_; }
  /// Keys of a tile, a multiple of the lanes and at most kWideKeys.
  int64_t tile_keys() const { return tile_keys_; }
  /// A row of values or of output.
  int64_t value_stride() const { return value_stride_; }

  /// Sets the parameters of query head `head`, and what they make of scores in
  /// `args`; before its rows.
  void SetHead(int64_t batch, int64_t head, WideArgs& args);
  /// Brings the queries of at most most_rows() rows that read the same keys.
  void SetRows(absl::Span<const RowId> rows);

  void LoadKeys(const KeyTile& tile);
  void LoadValues(const KeyTile& tile);

  /// Points `args` at rows first ... first + kWideRows - 1 and the tile.
  void SetGroup(int64_t first, WideArgs& args);

 private:
  void SetExtents(int64_t row_block);
  int64_t PlaceOf(int64_t row) const;
  void SetQuery(int64_t row, RowId id);
  void SetExponentials(int64_t row);
  void FinishKeys(int64_t count);

  const ValidatedProblem& problem_;
  const Kernels& kernels_;

  // Extents of what is kept, in elements.
  int64_t query_stride_;
  int64_t key_stride_;
  int64_t projected_stride_ = 0;
  int64_t value_stride_;
  int64_t width_;  // that scores are summed over
  int64_t most_rows_;
  int64_t tile_keys_;
  int64_t key_columns_;  // from one row of keys_ to the next

  int64_t batch_ = 0;
  int64_t kv_head_ = 0;
  bool values_finite_ = true;

  double* queries_;  // [group][width][kWideRows]
  double* keys_;     // [width][key_columns]
  double* values_;
  uint8_t* value_finite_;
  float* narrow_;  // a few rows on their way to FP64
  double* wide_;
  double* projected_;
  double* query_exponentials_ = nullptr;
  double* key_exponentials_ = nullptr;
  uint8_t* large_ = nullptr;  // per row: exponentials of its query overflow
  uint8_t* exact_ = nullptr;  // per row of the group
  bool large_keys_ = false;   // the same of the tile's keys
  float* w_q_ = nullptr;
  float* w_k_ = nullptr;
  float* w_v_narrow_ = nullptr;
  double* w_v_ = nullptr;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_WIDE_OPERANDS_H_
