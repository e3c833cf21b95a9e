#include "core/cuda/kernels/device_kernels.h"
#include "core/cuda/kernels/dispatch-inl.h"
#include "core/cuda/kernels/weights-inl.h"

namespace attention::cuda {

int LaunchWeights(const AttentionArgs& args, const LaunchShape& shape,
                  void* stream) {
  return DispatchScore(args, [&]<Score kScore>() {
    return LaunchKernel<StoreWeights<kScore>, kAttendThreads, 3>(args, shape,
                                                                 stream);
  });
}

}  // namespace attention::cuda
