#ifndef ATTENTION_CORE_CPU_CAREFUL_ROWS_H_
#define ATTENTION_CORE_CPU_CAREFUL_ROWS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/cpu/job_run.h"
#include "core/cpu/kernels.h"
#include "core/cpu/row_id.h"
#include "core/cpu/scratch.h"
#include "core/cpu/zero_rows.h"
#include "core/philox.h"
#include "core/validate.h"

namespace attention::cpu {

/// Computes rows of one lane in FP64, with the meaning that the reference gives
/// to every option, and stores their results over what was there. What a row
/// gives depends on nothing but the row: tiles lie at multiples of their size,
/// and rows of a group do not see each other.
class CarefulRows {
 public:
  /// Takes its memory from `scratch`.
  CarefulRows(JobRun& run, Scratch& scratch);

  /// Rows of `batch` whose heads read the same keys with the same parameters.
  /// False once the job was stopped.
  bool Compute(int64_t batch, absl::Span<const RowId> rows);

 private:
  // Keys first ... first + count - 1 of a block.
  struct Tile {
    const ValidatedProblem::Block* block;
    int64_t first;
    int64_t count;
    int64_t first_key;  // among all keys
  };

  void SetHead();
  void SetRows(absl::Span<const RowId> rows);
  int64_t PlaceOf(int64_t row) const;
  void SetQuery(int64_t row);
  void SetExponentials(int64_t row);
  bool ComputeGroups();
  // Calls visit(tile) for every tile that holds one of keys_, in order. False
  // once the job was stopped.
  template <typename Visit>
  bool ForEachTile(const Visit& visit);
  void LoadKeys(const Tile& tile);
  void FinishKeys(int64_t count);
  void LoadValues(const Tile& tile);
  // Points args_ at rows first ... first + kWideRows - 1 of the sweep.
  void SetGroup(int64_t first, const Tile& tile);
  void SetAddends(int64_t first, const Tile& tile);
  void SetDropout(int64_t first, const Tile& tile);
  bool IsAveraged(int64_t row) const;
  bool AverageEmptyRows();
  void SetUniformWeights(int64_t first, const Tile& tile);
  bool StoreWeights();
  void FillWeights(int64_t row, float* to) const;
  void StoreTileWeights(int64_t first, const Tile& tile);
  void StoreRow(int64_t row) const;
  double DropoutFactor(int64_t row, int64_t key) const;
  int64_t ResultOf(int64_t row) const;
  float* WeightRow(int64_t row) const;

  JobRun& run_;
  const ValidatedProblem& problem_;
  const Kernels& kernels_;
  DropoutPattern dropout_;

  // Extents of what is kept, in elements.
  int64_t query_stride_;
  int64_t key_stride_;
  int64_t projected_stride_ = 0;
  int64_t value_stride_;
  int64_t width_;        // that scores are summed over
  int64_t most_rows_;    // of a sweep, a multiple of kWideRows
  int64_t tile_keys_;    // a multiple of the lanes
  int64_t key_columns_;  // from one row of keys_ to the next

  int64_t batch_ = 0;
  int64_t kv_head_ = 0;
  absl::Span<const RowId> rows_;
  KeyRange all_;  // spans the ranges of all rows
  bool values_finite_ = true;

  KeyRange* ranges_;
  int32_t* begin_;
  int32_t* end_;
  double* max_;
  double* sum_;
  double* queries_;  // [group][width][kWideRows]
  double* output_;
  double* keys_;  // [width][key_columns]
  double* values_;
  uint8_t* value_finite_;
  double* scores_;
  double* addends_;
  double* kept_;
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
  WideArgs args_ = {};
};

/// The same with the calling thread's memory: what it held is lost. Of rows
/// that have the same result by ZeroRows, one is computed and copied to the
/// others. False once the job was stopped or is out of memory.
bool ComputeCarefulRows(JobRun& run, int64_t batch,
                        absl::Span<const RowId> rows);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_CAREFUL_ROWS_H_
