#include "core/cuda/kernels/weights-inl.h"

#include "core/cuda/kernels/device_kernels.h"
#include "core/cuda/kernels/dispatch-inl.h"

namespace attention::cuda {
namespace {

template <Score kScore>
__global__ void __launch_bounds__(kAttendThreads, 2)
    WeightsKernel(const __grid_constant__ AttentionArgs args,
                  int64_t first_block) {
  StoreWeights<kScore>(args, first_block + BlockIndex());
}

}  // namespace

int LaunchWeights(const AttentionArgs& args, const LaunchShape& shape,
                  void* stream) {
  return DispatchScore(args, [&]<Score kScore>() {
    return LaunchKernel(WeightsKernel<kScore>, args, shape, stream);
  });
}

}  // namespace attention::cuda
