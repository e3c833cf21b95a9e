#include "core/cuda/kernels/device_kernels.h"
#include "core/cuda/kernels/entries-inl.h"
#include "core/cuda/kernels/project-inl.h"
#include "core/cuda/kernels/rearrange-inl.h"

namespace attention::cuda {

int LaunchRearrange(const RearrangeArgs& args, const LaunchShape& shape,
                    void* stream) {
  return LaunchKernel<Rearrange, kRearrangeThreads>(args, shape, stream);
}

int LaunchRearrangeEntries(const RearrangeEntriesArgs& entries,
                           const LaunchShape& shape, void* stream) {
  return LaunchKernel<OfEntries<Rearrange, RearrangeArgs>, kRearrangeThreads>(
      entries, shape, stream);
}

int LaunchProject(const ProjectArgs& args, const LaunchShape& shape,
                  void* stream) {
  return LaunchKernel<Project, kProjectThreads>(args, shape, stream);
}

}  // namespace attention::cuda
