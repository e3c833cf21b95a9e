#include "core/cuda/kernels/device_kernels.h"
#include "core/cuda/kernels/dispatch-inl.h"
#include "core/cuda/kernels/mma-inl.h"

namespace attention::cuda {

int LaunchAttendMma(const AttentionArgs& args, const LaunchShape& shape,
                    void* stream) {
  return DispatchMma(args, [&]<typename Instance>() {
    return LaunchKernel<AttendMma<Instance>, kMmaThreads>(args, shape, stream);
  });
}

}  // namespace attention::cuda
