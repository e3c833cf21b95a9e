#include "core/tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/element.h"

namespace attention {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr int64_t kHugeFrom = int64_t{4} << 20;  // as NumPy has it

// Asks for huge pages, because decoding reads a tensor once, and is then bound
// by looking its pages up. Only a hint: whatever the system answers is fine.
void UseHugePages(std::byte* memory, int64_t bytes) {
  static const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t before = -reinterpret_cast<intptr_t>(memory) & (page - 1);
  madvise(memory + before, static_cast<size_t>(bytes - before), MADV_HUGEPAGE);
}

// A wrong count is a mistake in the calling program, as an index past the end
// is.
template <typename T>
Tensor FromValues(DataType type, Shape shape, absl::Span<const T> values) {
  absl::StatusOr<Tensor> tensor = Tensor::Create(type, std::move(shape));
  if (!tensor.ok() ||
      tensor->element_count() != static_cast<int64_t>(values.size())) {
    std::abort();
  }
  if (!values.empty()) {
    std::memcpy(tensor->data(), values.data(), values.size() * sizeof(T));
  }
  return *std::move(tensor);
}

template <typename T>
std::vector<T> Convert(const Tensor& tensor) {
  std::vector<T> values(static_cast<size_t>(tensor.element_count()));
  const int64_t step = ByteSize(tensor.type());
  const std::byte* element = tensor.data();
  for (T& value : values) {
    value = static_cast<T>(LoadElement(tensor.type(), element));
    element += step;
  }
  return values;
}

}  // namespace

absl::Status Tensor::Allocate(int64_t bytes) {
  auto* memory = static_cast<std::byte*>(
      ::operator new[](static_cast<size_t>(bytes), kAlignment, std::nothrow));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", bytes, " bytes"));
  }
  if (bytes >= kHugeFrom) UseHugePages(memory, bytes);
  bytes_ = std::shared_ptr<std::byte[]>(memory, [](std::byte* released) {
    ::operator delete[](released, kAlignment);
  });
  return absl::OkStatus();
}

absl::StatusOr<Tensor> Tensor::CreateUninitialized(DataType type, Shape shape) {
  absl::StatusOr<int64_t> count = ElementCount(shape, ByteSize(type));
  if (!count.ok()) return count.status();
  Tensor tensor;
  tensor.type_ = type;
  tensor.shape_ = std::move(shape);
  tensor.element_count_ = *count;
  if (tensor.byte_size() > 0) {
    if (absl::Status memory = tensor.Allocate(tensor.byte_size());
        !memory.ok()) {
      return memory;
    }
  }
  return tensor;
}

absl::StatusOr<Tensor> Tensor::Create(DataType type, Shape shape) {
  absl::StatusOr<Tensor> tensor = CreateUninitialized(type, std::move(shape));
  if (tensor.ok() && tensor->byte_size() > 0) {
    std::memset(tensor->data(), 0, static_cast<size_t>(tensor->byte_size()));
  }
  return tensor;
}

Tensor Tensor::FromFloats(Shape shape, absl::Span<const float> values) {
  return FromValues(DataType::kFloat32, std::move(shape), values);
}

Tensor Tensor::FromInts(Shape shape, absl::Span<const int32_t> values) {
  return FromValues(DataType::kInt32, std::move(shape), values);
}

Tensor::Tensor(const Tensor& other)
    : type_(other.type_),
      shape_(other.shape_),
      element_count_(other.element_count_) {
  if (other.bytes_ == nullptr) return;
  // As any copy of a standard container, it throws where there is no memory.
  if (!Allocate(byte_size()).ok()) throw std::bad_alloc();
  std::memcpy(bytes_.get(), other.bytes_.get(),
              static_cast<size_t>(byte_size()));
}

Tensor& Tensor::operator=(const Tensor& other) {
  if (this != &other) *this = Tensor(other);
  return *this;
}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  type_ = std::exchange(other.type_, DataType::kFloat32);
  shape_ = std::exchange(other.shape_, {0});
  element_count_ = std::exchange(other.element_count_, 0);
  bytes_ = std::exchange(other.bytes_, nullptr);
  return *this;
}

absl::Span<const std::byte> Tensor::bytes() const {
  return {bytes_.get(), static_cast<size_t>(byte_size())};
}

Tensor Tensor::As(DataType type, Shape shape) && {
  const absl::StatusOr<int64_t> count = ElementCount(shape, ByteSize(type));
  if (!count.ok() || *count * ByteSize(type) != byte_size()) std::abort();
  type_ = type;
  shape_ = std::move(shape);
  element_count_ = *count;
  return std::move(*this);
}

TensorView Tensor::view() const {
  return ContiguousView(type_, shape_, bytes_.get());
}

MutableTensorView Tensor::mutable_view() {
  return MutableContiguousView(type_, shape_, bytes_.get());
}

std::vector<float> Tensor::ToFloats() const { return Convert<float>(*this); }

std::vector<double> Tensor::ToDoubles() const { return Convert<double>(*this); }

}  // namespace attention
