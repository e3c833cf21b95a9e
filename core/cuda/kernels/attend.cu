#include "core/cuda/kernels/attend-inl.h"
#include "core/cuda/kernels/device_kernels.h"
#include "core/cuda/kernels/dispatch-inl.h"
#include "core/cuda/kernels/merge-inl.h"

namespace attention::cuda {

int LaunchAttend(const AttentionArgs& args, const LaunchShape& shape,
                 void* stream) {
  return DispatchAttend(args, [&]<Score kScore, int kColumnGroups, int kSide>() {
    return LaunchKernel<Attend<kScore, kColumnGroups, kSide>, kAttendThreads,
                        AttendBlocks(kSide)>(args, shape, stream);
  });
}

int LaunchMerge(const AttentionArgs& args, const LaunchShape& shape,
                void* stream) {
  return LaunchKernel<Merge, kMergeThreads>(args, shape, stream);
}

}  // namespace attention::cuda
