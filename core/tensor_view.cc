#include "core/tensor_view.h"

#include "absl/strings/str_cat.h"

namespace attention {
namespace {

template <typename Byte>
BasicTensorView<Byte> Contiguous(DataType type, absl::Span<const int64_t> shape,
                                 Byte* data) {
  BasicTensorView<Byte> view;
  view.type = type;
  view.shape.assign(shape.begin(), shape.end());
  view.strides = ContiguousStrides(shape, ByteSize(type));
  view.data = data;
  return view;
}

}  // namespace

Shape ContiguousStrides(absl::Span<const int64_t> shape, int64_t element_size) {
  Shape strides(shape.size());
  int64_t stride = element_size;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    // ElementCount() bounded this product.
    if (shape[i] > 0) stride *= shape[i];
  }
  return strides;
}

absl::StatusOr<TensorView> ViewOfBytes(absl::string_view field, DataType type,
                                       absl::Span<const int64_t> shape,
                                       absl::Span<const std::byte> bytes) {
  const absl::StatusOr<int64_t> count = ElementCount(shape, ByteSize(type));
  if (!count.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", count.status().message()));
  }
  const auto expected = static_cast<uint64_t>(*count * ByteSize(type));
  if (bytes.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, ": ", bytes.size(), " bytes of data, shape ",
        ShapeToString(shape), " of ", Name(type), " needs ", expected));
  }
  return ContiguousView(type, shape, bytes.data());
}

TensorView ContiguousView(DataType type, absl::Span<const int64_t> shape,
                          const void* data) {
  return Contiguous(type, shape, static_cast<const std::byte*>(data));
}

MutableTensorView MutableContiguousView(DataType type,
                                        absl::Span<const int64_t> shape,
                                        void* data) {
  return Contiguous(type, shape, static_cast<std::byte*>(data));
}

bool IsRowMajor(const TensorView& view, size_t first) {
  int64_t stride = ByteSize(view.type);
  for (size_t n = view.shape.size(); n > first; --n) {
    if (view.shape[n - 1] != 1 && view.strides[n - 1] != stride) return false;
    if (view.shape[n - 1] > 0) stride *= view.shape[n - 1];
  }
  return true;
}

TensorView ReadOnly(const MutableTensorView& view) {
  return {view.type, view.shape, view.strides,
          view.data, view.space, view.device};
}

}  // namespace attention
