#include "core/cuda/kernels/device_kernels.h"
#include "core/cuda/kernels/dispatch-inl.h"
#include "core/cuda/kernels/entries-inl.h"
#include "core/cuda/kernels/mma-inl.h"

namespace attention::cuda {

int LaunchAttendMmaEntries(const EntriesArgs& entries,
                           const AttentionArgs& like, const LaunchShape& shape,
                           void* stream) {
  return DispatchMma</*kEntries=*/true>(like, [&]<typename Instance>() {
    return LaunchKernel<OfEntries<AttendMma<Instance>>, kMmaThreads>(
        entries, shape, stream);
  });
}

}  // namespace attention::cuda
