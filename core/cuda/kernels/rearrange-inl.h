#ifndef ATTENTION_CORE_CUDA_KERNELS_REARRANGE_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_REARRANGE_INL_H_

// Copies between places of the device's memory, whatever their strides.

#include "core/cuda/kernels/limits.h"
#include "core/cuda/portable/portable.h"

namespace attention::cuda {

struct alignas(16) Unit16 {
  uint32_t words[4];
};

template <typename Unit>
ATTENTION_KERNEL_CODE void RearrangeUnits(const RearrangeArgs& args,
                                          int64_t block) {
  const int64_t count = RearrangeCount(args);
  for (int n = 0; n < kRearrangeUnits; ++n) {
    // Neighbours in a warp move neighbours.
    int64_t index =
        (block * kRearrangeUnits + n) * kRearrangeThreads + ThreadIndex();
    if (index >= count) return;
    int64_t from = 0;
    int64_t to = 0;
    for (int d = 4; d >= 0; --d) {
      const int64_t i = index % args.extents[d];
      index /= args.extents[d];
      from += i * args.from_strides[d];
      to += i * args.to_strides[d];
    }
    *reinterpret_cast<Unit*>(static_cast<std::byte*>(args.to) + to) =
        *reinterpret_cast<const Unit*>(
            static_cast<const std::byte*>(args.from) + from);
  }
}

ATTENTION_KERNEL_CODE void Rearrange(const RearrangeArgs& args, int64_t block) {
  switch (args.unit) {
    case 16:
      return RearrangeUnits<Unit16>(args, block);
    case 4:
      return RearrangeUnits<uint32_t>(args, block);
    case 2:
      return RearrangeUnits<uint16_t>(args, block);
    default:
      return RearrangeUnits<uint8_t>(args, block);
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_REARRANGE_INL_H_
