#include "core/cuda/kernels/device_kernels.h"
#include "core/cuda/kernels/dispatch-inl.h"
#include "core/cuda/kernels/weights-inl.h"

namespace attention::cuda {

int LaunchWeights(const AttentionArgs& args, const LaunchShape& shape,
                  void* stream) {
  return DispatchScore(args, [&]<Score kScore>() {
    constexpr int kBlocks = kScore == Score::kAdditive ? 2 : 3;
    return LaunchKernel<StoreWeights<kScore>, kAttendThreads, kBlocks>(
        args, shape, stream);
  });
}

}  // namespace attention::cuda
