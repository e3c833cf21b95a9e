#ifndef ATTENTION_TESTS_UNIT_CUDA_KERNELS_KERNEL_MEMORY_H_
#define ATTENTION_TESTS_UNIT_CUDA_KERNELS_KERNEL_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/cuda/kernels/arguments.h"
#include "core/cuda/kernels/limits.h"
#include "core/element.h"
#include "core/tensor_view.h"

namespace attention::cuda::test {

/// FP32, FP16 or BF16, as kernels name them.
inline Element ElementOf(DataType type) {
  return type == DataType::kFloat16    ? Element::kFloat16
         : type == DataType::kBFloat16 ? Element::kBFloat16
                                       : Element::kFloat32;
}

/// The "device's" memory: allocations of exactly the bytes that were asked for.
class Memory {
 public:
  /// Aligned as new has it.
  void* Take(int64_t bytes) {
    auto allocation = std::make_unique<std::byte[]>(static_cast<size_t>(bytes));
    // As in a device's memory, something is there: large, and not 0.
    std::memset(allocation.get(), 0x7B, static_cast<size_t>(bytes));
    allocations_.push_back(std::move(allocation));
    return allocations_.back().get();
  }
  template <typename T>
  T* Take(int64_t count) {
    return static_cast<T*>(Take(count * static_cast<int64_t>(sizeof(T))));
  }

  /// A row-major copy of a view of four extents. Of a mask, whose strides are
  /// asked for, those of stride 0 are reduced to 1, and rows begin at multiples
  /// of 16 bytes.
  void* Gather(const TensorView& view, Broadcast* strides = nullptr) {
    int64_t extents[4];
    int64_t steps[4];
    int64_t count = 1;
    for (int n = 3; n >= 0; --n) {
      const bool shared = strides != nullptr && view.strides[n] == 0;
      extents[n] = shared ? 1 : view.shape[n];
      steps[n] = shared ? 0 : count;
      count *= extents[n];
      if (n == 3 && strides != nullptr && !shared) {
        const int64_t unit = 16 / ByteSize(view.type);
        count = CeilDivide(count, unit) * unit;
      }
    }
    const int64_t size = ByteSize(view.type);
    auto* to = Take<std::byte>(count * size);
    if (strides != nullptr) {
      *strides = {to,      ElementOf(view.type), steps[0], steps[1], steps[2],
                  steps[3]};
    }
    for (int64_t b = 0; b < extents[0]; ++b) {
      for (int64_t h = 0; h < extents[1]; ++h) {
        for (int64_t i = 0; i < extents[2]; ++i) {
          std::byte* next =
              to + (b * steps[0] + h * steps[1] + i * steps[2]) * size;
          for (int64_t j = 0; j < extents[3]; ++j, next += size) {
            std::memcpy(next, view.At(b, h, i, j), static_cast<size_t>(size));
          }
        }
      }
    }
    return to;
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> allocations_;
};

}  // namespace attention::cuda::test

#endif  // ATTENTION_TESTS_UNIT_CUDA_KERNELS_KERNEL_MEMORY_H_
