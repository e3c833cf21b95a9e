#include "core/cuda/kernels/careful-inl.h"

#include "core/cuda/kernels/device_kernels.h"
#include "core/cuda/kernels/project-inl.h"

namespace attention::cuda {
namespace {

__global__ void __launch_bounds__(kCarefulThreads)
    CarefulKernel(const __grid_constant__ AttentionArgs args,
                  int64_t first_block) {
  Careful(args, first_block + BlockIndex());
}

__global__ void __launch_bounds__(kProjectThreads)
    ProjectKernel(const __grid_constant__ ProjectArgs args,
                  int64_t first_block) {
  Project(args, first_block + BlockIndex());
}

}  // namespace

int LaunchCareful(const AttentionArgs& args, const LaunchShape& shape,
                  void* stream) {
  return LaunchKernel(CarefulKernel, args, shape, stream);
}

int LaunchProject(const ProjectArgs& args, const LaunchShape& shape,
                  void* stream) {
  return LaunchKernel(ProjectKernel, args, shape, stream);
}

}  // namespace attention::cuda
