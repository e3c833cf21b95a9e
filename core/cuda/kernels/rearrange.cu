#include "core/cuda/kernels/rearrange-inl.h"

#include "core/cuda/kernels/device_kernels.h"

namespace attention::cuda {
namespace {

__global__ void __launch_bounds__(kRearrangeThreads)
    RearrangeKernel(const __grid_constant__ RearrangeArgs args,
                    int64_t first_block) {
  Rearrange(args, first_block + BlockIndex());
}

}  // namespace

int LaunchRearrange(const RearrangeArgs& args, const LaunchShape& shape,
                    void* stream) {
  return LaunchKernel(RearrangeKernel, args, shape, stream);
}

}  // namespace attention::cuda
