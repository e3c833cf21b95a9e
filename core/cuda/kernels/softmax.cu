#include "core/cuda/kernels/device_kernels.h"
#include "core/cuda/kernels/softmax-inl.h"

namespace attention::cuda {

int LaunchSoftmaxRows(const SoftmaxRowsArgs& args, const LaunchShape& shape,
                      void* stream) {
  return LaunchKernel<SoftmaxRows, kSoftmaxThreads>(args, shape, stream);
}

int LaunchFinishOutput(const FinishOutputArgs& args, const LaunchShape& shape,
                       void* stream) {
  return LaunchKernel<FinishOutput, kFinishThreads>(args, shape, stream);
}

}  // namespace attention::cuda
