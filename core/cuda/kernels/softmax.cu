#include "core/cuda/kernels/device_kernels.h"
#include "core/cuda/kernels/softmax-inl.h"

namespace attention::cuda {
namespace {

__global__ void __launch_bounds__(kSoftmaxThreads)
    SoftmaxRowsKernel(const __grid_constant__ SoftmaxRowsArgs args,
                      int64_t first_block) {
  SoftmaxRows(args, first_block + BlockIndex());
}

__global__ void __launch_bounds__(kFinishThreads)
    FinishOutputKernel(const __grid_constant__ FinishOutputArgs args,
                       int64_t first_block) {
  FinishOutput(args, first_block + BlockIndex());
}

}  // namespace

int LaunchSoftmaxRows(const SoftmaxRowsArgs& args, const LaunchShape& shape,
                      void* stream) {
  return LaunchKernel(SoftmaxRowsKernel, args, shape, stream);
}

int LaunchFinishOutput(const FinishOutputArgs& args, const LaunchShape& shape,
                       void* stream) {
  return LaunchKernel(FinishOutputKernel, args, shape, stream);
}

}  // namespace attention::cuda
