#include "core/cpu/row_source.h"

namespace attention::cpu {
namespace {

RowSource WithScales(RowSource rows, const std::optional<TensorView>& scales,
                     int64_t batch, int64_t head, int64_t first) {
  if (!scales) return rows;
  rows.scales = reinterpret_cast<const unsigned char*>(
      scales->data + batch * scales->strides[0] + head * scales->strides[1] +
      first * scales->strides[2]);
  rows.scale_stride = scales->strides[2];
  return rows;
}

}  // namespace

Element ElementOf(DataType type) {
  return type == DataType::kFloat16    ? Element::kFloat16
         : type == DataType::kBFloat16 ? Element::kBFloat16
         : type == DataType::kInt8     ? Element::kInt8
         : type == DataType::kFloat8   ? Element::kFloat8
                                       : Element::kFloat32;
}

RowSource RowsOf(const TensorView& view, int64_t batch, int64_t head,
                 int64_t first) {
  return {
      reinterpret_cast<const unsigned char*>(view.At(batch, head, first, 0)),
      view.strides[2], view.strides[3], ElementOf(view.type)};
}

RowSource KeysOf(const ValidatedProblem::Block& block, int64_t batch,
                 int64_t head, int64_t first) {
  return WithScales(RowsOf(block.key, batch, head, first), block.key_scale,
                    batch, head, first);
}

RowSource ValuesOf(const ValidatedProblem::Block& block, int64_t batch,
                   int64_t head, int64_t first) {
  return WithScales(RowsOf(block.value, batch, head, first), block.value_scale,
                    batch, head, first);
}

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
