#include "core/cuda/kernels/device_kernels.h"

namespace attention::cuda {

const KernelTable& DeviceKernels() {
  static const KernelTable table = {
      .attend = LaunchAttend,
      .attend_mma = LaunchAttendMma,
#ifdef ATTENTION_CUDA_HAS_WGMMA
      .attend_wgmma = LaunchAttendWgmma,
#else
      .attend_wgmma = nullptr,
#endif
      .merge = LaunchMerge,
      .weights = LaunchWeights,
      .recompute = LaunchRecompute,
      .project = LaunchProject,
      .softmax_rows = LaunchSoftmaxRows,
      .finish_output = LaunchFinishOutput,
      .rearrange = LaunchRearrange,
  };
  return table;
}

}  // namespace attention::cuda
