#ifndef ATTENTION_CORE_CPU_ROW_SOURCE_H_
#define ATTENTION_CORE_CPU_ROW_SOURCE_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "core/cpu/kernels/arguments.h"
#include "core/tensor_view.h"
#include "core/validate.h"

namespace attention::cpu {

/// The kernels' name of an element type that attention has.
constexpr Element ElementOf(DataType type) {
  return type == DataType::kFloat16    ? Element::kFloat16
         : type == DataType::kBFloat16 ? Element::kBFloat16
         : type == DataType::kInt8     ? Element::kInt8
         : type == DataType::kFloat8   ? Element::kFloat8
                                       : Element::kFloat32;
}

/// Where row `first` of head (b, h) begins, or its scale: of a view of four
/// dimensions, or three. Inline, as what follows, for pages are many.
inline const unsigned char* RowAt(const TensorView& view, int64_t batch,
                                  int64_t head, int64_t first) {
  const absl::Span<const int64_t> strides = view.strides;
  return reinterpret_cast<const unsigned char*>(view.data) +
         batch * strides[0] + head * strides[1] + first * strides[2];
}

/// Rows first ... of head (b, h) of a four-dimensional view.
inline RowSource RowsOf(const TensorView& view, int64_t batch, int64_t head,
                        int64_t first) {
  return {RowAt(view, batch, head, first), view.strides[2], view.strides[3],
          ElementOf(view.type)};
}

/// Which tensors of a block: its keys, or its values, with their scales.
struct BlockTensors {
  TensorView ValidatedProblem::Block::*rows;
  std::optional<TensorView> ValidatedProblem::Block::*scales;
};
inline constexpr BlockTensors kKeys = {&ValidatedProblem::Block::key,
                                       &ValidatedProblem::Block::key_scale};
inline constexpr BlockTensors kValues = {&ValidatedProblem::Block::value,
                                         &ValidatedProblem::Block::value_scale};

/// Of these, the same, with scales where they have some.
inline RowSource RowsOf(const ValidatedProblem::Block& block,
                        const BlockTensors& tensors, int64_t batch,
                        int64_t head, int64_t first) {
  RowSource rows = RowsOf(block.*tensors.rows, batch, head, first);
  if (const auto& scales = block.*tensors.scales) {
    rows.scales = RowAt(*scales, batch, head, first);
    rows.scale_stride = scales->strides[2];
  }
  return rows;
}

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
