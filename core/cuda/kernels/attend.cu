#include "core/cuda/kernels/attend-inl.h"

#include "core/cuda/kernels/device_kernels.h"
#include "core/cuda/kernels/dispatch-inl.h"
#include "core/cuda/kernels/merge-inl.h"

namespace attention::cuda {
namespace {

template <Score kScore, int kGroups>
__global__ void __launch_bounds__(kAttendThreads, 2)
    AttendKernel(const __grid_constant__ AttentionArgs args,
                 int64_t first_block) {
  Attend<kScore, kGroups>(args, first_block + BlockIndex());
}

__global__ void __launch_bounds__(kMergeThreads)
    MergeKernel(const __grid_constant__ AttentionArgs args,
                int64_t first_block) {
  Merge(args, first_block + BlockIndex());
}

}  // namespace

int LaunchAttend(const AttentionArgs& args, const LaunchShape& shape,
                 void* stream) {
  return DispatchAttend(args, [&]<Score kScore, int kGroups>() {
    return LaunchKernel(AttendKernel<kScore, kGroups>, args, shape, stream);
  });
}

int LaunchMerge(const AttentionArgs& args, const LaunchShape& shape,
                void* stream) {
  return LaunchKernel(MergeKernel, args, shape, stream);
}

}  // namespace attention::cuda
