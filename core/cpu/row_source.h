#ifndef ATTENTION_CORE_CPU_ROW_SOURCE_H_
#define ATTENTION_CORE_CPU_ROW_SOURCE_H_

#include <cstdint>

#include "core/cpu/kernels/arguments.h"
#include "core/tensor_view.h"
#include "core/validate.h"

namespace attention::cpu {

/// The kernels' name of an element type that attention has.
Element ElementOf(DataType type);

/// Rows first ... of head (b, h) of a four-dimensional view.
RowSource RowsOf(const TensorView& view, int64_t batch, int64_t head,
                 int64_t first);

/// The keys, and the values, of a block, with their scales where they have
/// some.
RowSource KeysOf(const ValidatedProblem::Block& block, int64_t batch,
                 int64_t head, int64_t first);
RowSource ValuesOf(const ValidatedProblem::Block& block, int64_t batch,
                   int64_t head, int64_t first);

/// One head's part of a parameter: the rows of a (Hq, rows, columns) view, or
/// a (Hq, columns) view as one row.
RowSource ParameterRows(const TensorView& view, int64_t head);
RowSource ParameterVector(const TensorView& view, int64_t head);

/// The same rows without the first ones.
RowSource RowsFrom(RowSource rows, int64_t first);

/// The same rows from column `first` on.
RowSource ColumnsFrom(RowSource rows, int64_t first);

/// Rows of floats side by side, `stride` floats apart.
struct FloatRows {
  const float* data = nullptr;
  int64_t stride = 0;
};

/// Rows that may be read as floats where they lie; null data for others.
FloatRows InPlace(const RowSource& rows);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROW_SOURCE_H_
