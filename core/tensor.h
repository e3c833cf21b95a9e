#ifndef ATTENTION_CORE_TENSOR_H_
#define ATTENTION_CORE_TENSOR_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/datatype.h"
#include "core/shape.h"
#include "core/tensor_view.h"

namespace attention {

/// A row-major tensor that owns its bytes, aligned to 64. What files are read
/// into, what the client sends and receives, and what tests build. Copyable.
/// From 4 MiB on it asks the system for huge pages, as NumPy's arrays do.
class Tensor {
 public:
  /// A tensor of shape [0].
  Tensor() = default;

  /// Zero-filled. INVALID_ARGUMENT where the shape has a negative extent or
  /// overflows; RESOURCE_EXHAUSTED where that much memory cannot be had.
  static absl::StatusOr<Tensor> Create(DataType type, Shape shape);

  /// The same without the zeros, for who writes every element.
  static absl::StatusOr<Tensor> CreateUninitialized(DataType type, Shape shape);

  /// FP32 from values; their number must be the shape's product (checked).
  static Tensor FromFloats(Shape shape, absl::Span<const float> values);
  /// INT32 from values, for lengths; their number is checked as above.
  static Tensor FromInts(Shape shape, absl::Span<const int32_t> values);

  DataType type() const { return type_; }
  const Shape& shape() const { return shape_; }
  int64_t element_count() const { return element_count_; }
  int64_t byte_size() const { return element_count_ * ByteSize(type_); }

  const std::byte* data() const { return bytes_.get(); }
  std::byte* data() { return bytes_.get(); }
  absl::Span<const std::byte> bytes() const;

  /// Keeps the bytes alive, where they are, beyond the tensor; null where there
  /// are none. A copy of the tensor has bytes of its own.
  std::shared_ptr<const std::byte[]> shared_bytes() const { return bytes_; }

  /// The same bytes as another type and shape, which must need exactly as many
  /// (checked).
  Tensor As(DataType type, Shape shape) &&;

  TensorView view() const;
  MutableTensorView mutable_view();

  /// The elements as FP32 or FP64 in row-major order, converted from whatever
  /// the type is (BOOL gives 0 and 1).
  std::vector<float> ToFloats() const;
  std::vector<double> ToDoubles() const;

  Tensor(const Tensor& other);
  Tensor& operator=(const Tensor& other);
  /// They leave Tensor() behind.
  Tensor(Tensor&& other) noexcept { *this = std::move(other); }
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor() = default;

 private:
  absl::Status Allocate(int64_t bytes);

  DataType type_ = DataType::kFloat32;
  Shape shape_ = {0};
  int64_t element_count_ = 0;
  std::shared_ptr<std::byte[]> bytes_;
};

}  // namespace attention

#endif  // ATTENTION_CORE_TENSOR_H_
