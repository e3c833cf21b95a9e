#ifndef ATTENTION_CORE_TENSOR_VIEW_H_
#define ATTENTION_CORE_TENSOR_VIEW_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/datatype.h"
#include "core/shape.h"

namespace attention {

/// Where a tensor's bytes lie. A backend says which spaces it reads.
enum class MemorySpace : uint8_t { kHost, kCudaDevice };

/// Somebody else's tensor: element type, extents, strides in bytes and memory
/// space. No alignment is promised, and strides may be anything that stays
/// within the owner's memory: 0 repeats an element (a broadcast mask), and a
/// caller with (B, L, H, D) rows passes its own strides in (B, H, L, D) order.
/// The pointer is only dereferenced where every extent is above 0.
template <typename Byte>
struct BasicTensorView {
  DataType type = DataType::kFloat32;
  Shape shape;
  Shape strides;  // bytes, as many as there are extents
  Byte* data = nullptr;
  MemorySpace space = MemorySpace::kHost;
  int device = 0;  // which one, as CUDA counts them, where space is a device's

  int rank() const { return static_cast<int>(shape.size()); }

  /// The address of an element of a four-dimensional view; indices in range.
  Byte* At(int64_t i0, int64_t i1, int64_t i2, int64_t i3) const {
    return data + i0 * strides[0] + i1 * strides[1] + i2 * strides[2] +
           i3 * strides[3];
  }
};

using TensorView = BasicTensorView<const std::byte>;
using MutableTensorView = BasicTensorView<std::byte>;

/// Strides in bytes of a row-major tensor without padding. The shape must have
/// passed ElementCount().
Shape ContiguousStrides(absl::Span<const int64_t> shape, int64_t element_size);

/// A row-major view of `bytes`. INVALID_ARGUMENT, beginning with `field`, where
/// an extent is negative, the element count overflows, or the number of bytes
/// is not exactly what the shape and the type need.
absl::StatusOr<TensorView> ViewOfBytes(absl::string_view field, DataType type,
                                       absl::Span<const int64_t> shape,
                                       absl::Span<const std::byte> bytes);

/// A row-major view of memory that the caller knows to be large enough.
TensorView ContiguousView(DataType type, absl::Span<const int64_t> shape,
                          const void* data);
MutableTensorView MutableContiguousView(DataType type,
                                        absl::Span<const int64_t> shape,
                                        void* data);

/// True where the elements from extent `first` on lie as they would row-major
/// and without padding.
bool IsRowMajor(const TensorView& view, size_t first = 0);

/// The same elements, read-only.
TensorView ReadOnly(const MutableTensorView& view);

}  // namespace attention

#endif  // ATTENTION_CORE_TENSOR_VIEW_H_
