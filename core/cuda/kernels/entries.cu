#include "core/cuda/kernels/entries-inl.h"

#include "core/cuda/kernels/attend-inl.h"
#include "core/cuda/kernels/device_kernels.h"
#include "core/cuda/kernels/dispatch-inl.h"
#include "core/cuda/kernels/merge-inl.h"
#include "core/cuda/kernels/recompute-inl.h"

namespace attention::cuda {

int LaunchAttendEntries(const EntriesArgs& entries, const AttentionArgs& like,
                        const LaunchShape& shape, void* stream) {
  return DispatchAttend(like, [&]<Score kScore, int kColumnGroups, int kSide>() {
    return LaunchKernel<OfEntries<Attend<kScore, kColumnGroups, kSide, true>>,
                        kAttendThreads, AttendBlocks(kSide)>(entries, shape, stream);
  });
}

int LaunchMergeEntries(const EntriesArgs& entries, const AttentionArgs&,
                       const LaunchShape& shape, void* stream) {
  return LaunchKernel<OfEntries<Merge>, kMergeThreads>(entries, shape, stream);
}

int LaunchRecomputeEntries(const EntriesArgs& entries,
                           const AttentionArgs& like, const LaunchShape& shape,
                           void* stream) {
  return DispatchRecompute(like, [&]<Score kScore, int kColumnGroups>() {
    return LaunchKernel<OfEntries<Recompute<kScore, kColumnGroups, true>>,
                        kAttendThreads, 1>(entries, shape, stream);
  });
}

}  // namespace attention::cuda
