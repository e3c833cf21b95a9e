#include "core/cuda/kernels/device_kernels.h"
#include "core/cuda/kernels/dispatch-inl.h"
#include "core/cuda/kernels/recompute-inl.h"

namespace attention::cuda {

int LaunchRecompute(const AttentionArgs& args, const LaunchShape& shape,
                  void* stream) {
  return DispatchRecompute(args, [&]<Score kScore, int kColumnGroups>() {
    return LaunchKernel<Recompute<kScore, kColumnGroups>, kAttendThreads, 1>(
        args, shape, stream);
  });
}

}  // namespace attention::cuda
