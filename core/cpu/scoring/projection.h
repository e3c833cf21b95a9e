#ifndef ATTENTION_CORE_CPU_SCORING_PROJECTION_H_
#define ATTENTION_CORE_CPU_SCORING_PROJECTION_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "core/cpu/kernels/kernels.h"
#include "core/cpu/row_source.h"
#include "core/cpu/scratch.h"

namespace attention::cpu {

/// Products of rows with a parameter's matrix, in FP32. The matrix is read
/// where it lies if it holds floats in whole vectors, else widened some rows
/// and columns at a time.
class Projection {
 public:
  /// Columns of the rows that are multiplied at a time, at most.
  static constexpr int64_t kDepth = 128;

  Projection(const Kernels& kernels, Scratch& scratch);

  /// `depth` rows of `columns`.
  void SetMatrix(const RowSource& m, int64_t depth, int64_t columns);

  /// Puts columns first ... first + columns - 1 of `rows` rows times the matrix
  /// at `to`, rows `to_stride` floats apart and written in whole vectors.
  /// read(i, n) gives columns i ... i + n - 1 of the rows, n <= kDepth. Between
  /// pieces of the matrix it calls pause(), as a large one takes seconds; once
  /// that says false, it ends, and what is at `to` is unfinished.
  void Project(int64_t rows, int64_t first, int64_t columns,
               absl::FunctionRef<FloatRows(int64_t, int64_t)> read,
               absl::FunctionRef<bool()> pause, float* to, int64_t to_stride);

 private:
  FloatRows Piece(int64_t first_row, int64_t rows, int64_t first_column,
                  int64_t columns);

  const Kernels& kernels_;
  float* piece_;
  RowSource m_ = {};
  int64_t depth_ = 0;
  bool in_place_ = false;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_PROJECTION_H_
