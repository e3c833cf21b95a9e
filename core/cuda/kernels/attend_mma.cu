#include "core/cuda/kernels/device_kernels.h"
#include "core/cuda/kernels/dispatch-inl.h"
#include "core/cuda/kernels/mma-inl.h"

namespace attention::cuda {
namespace {

template <typename Instance>
__global__ void __launch_bounds__(kMmaThreads)
    AttendMmaKernel(const __grid_constant__ AttentionArgs args,
                    int64_t first_block) {
  AttendMma<Instance>(args, first_block + BlockIndex());
}

}  // namespace

int LaunchAttendMma(const AttentionArgs& args, const LaunchShape& shape,
                    void* stream) {
  return DispatchMma(args, [&]<typename Instance>() {
    return LaunchKernel(AttendMmaKernel<Instance>, args, shape, stream);
  });
}

}  // namespace attention::cuda
