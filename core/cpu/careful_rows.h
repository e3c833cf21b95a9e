#ifndef ATTENTION_CORE_CPU_CAREFUL_ROWS_H_
#define ATTENTION_CORE_CPU_CAREFUL_ROWS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/cpu/job_run.h"
#include "core/cpu/kernels.h"
#include "core/cpu/key_tile.h"
#include "core/cpu/row_id.h"
#include "core/cpu/scratch.h"
#include "core/cpu/wide_masks.h"
#include "core/cpu/wide_operands.h"
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
  void SetRows(absl::Span<const RowId> rows);
  // Rows first ... first + kWideRows - 1 of the sweep, as far as it has them.
  absl::Span<const RowId> GroupOf(int64_t first) const;
  bool ComputeGroups();
  // Calls visit(tile) for every tile that holds one of all_'s keys, in order.
  // False once the job was stopped.
  template <typename Visit>
  bool ForEachTile(const Visit& visit);
  // Points args_ at that group and the tile.
  void SetGroup(int64_t first, const KeyTile& tile);
  bool IsAveraged(int64_t row) const;
  bool AverageEmptyRows();
  void SetUniformWeights(int64_t first, const KeyTile& tile);
  bool StoreWeights();
  void FillWeights(int64_t row, float* to) const;
  void StoreTileWeights(int64_t first, const KeyTile& tile);
  void StoreRow(int64_t row) const;
  double DropoutFactor(int64_t row, int64_t key) const;
  int64_t ResultOf(int64_t row) const;
  float* WeightRow(int64_t row) const;

  JobRun& run_;
  const ValidatedProblem& problem_;
  const Kernels& kernels_;
  WideOperands operands_;
  WideMasks masks_;

  int64_t batch_ = 0;
  absl::Span<const RowId> rows_;  // of the sweep
  KeyRange all_;                  // spans the ranges of all rows

  KeyRange* ranges_;
  int32_t* begin_;
  int32_t* end_;
  double* max_;
  double* sum_;
  double* output_;
  double* scores_;
  WideArgs args_ = {};
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_CAREFUL_ROWS_H_
