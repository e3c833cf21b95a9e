#include "core/cpu/row_source.h"

namespace attention::cpu {

RowSource ParameterRows(const TensorView& view, int64_t head) {
  const auto* data = reinterpret_cast<const unsigned char*>(view.data);
  return {data + head * view.strides[0], view.strides[1], view.strides[2],
          ElementOf(view.type)};
}

RowSource ParameterVector(const TensorView& view, int64_t head) {
  const auto* data = reinterpret_cast<const unsigned char*>(view.data);
  return {data + head * view.strides[0], 0, view.strides[1],
          ElementOf(view.type)};
}

RowSource RowsFrom(RowSource rows, int64_t first) {
  rows.data += first * rows.row_stride;
  rows.scales += first * rows.scale_stride;
  return rows;
}

RowSource ColumnsFrom(RowSource rows, int64_t first) {
  rows.data += first * rows.column_stride;
  return rows;
}

FloatRows InPlace(const RowSource& rows) {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  if (rows.type != Element::kFloat32 || rows.column_stride != kFloat ||
      rows.row_stride % kFloat != 0 ||
      reinterpret_cast<uintptr_t>(rows.data) % kFloat != 0) {
    return {};
  }
  return {reinterpret_cast<const float*>(rows.data), rows.row_stride / kFloat};
}

}  // namespace attention::cpu
