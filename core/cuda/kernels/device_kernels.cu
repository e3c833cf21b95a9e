#include "core/cuda/kernels/device_kernels.h"

namespace attention::cuda {

cudaError_t SharedMemoryLimit::Raise(const void* kernel) {
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  // Devices beyond these are set each time, to the same.
  const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
  if ((raised_.load(std::memory_order_acquire) & bit) != 0) return cudaSuccess;
  int most = 0;
  error = cudaDeviceGetAttribute(
      &most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error != cudaSuccess) return error;
  cudaFuncAttributes of_kernel;
  error = cudaFuncGetAttributes(&of_kernel, kernel);
  if (error != cudaSuccess) return error;
  const int declared = static_cast<int>(of_kernel.sharedSizeBytes);
  error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most - declared);
  if (error == cudaSuccess) raised_.fetch_or(bit, std::memory_order_release);
  return error;
}

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
      .attend_entries = LaunchAttendEntries,
      .attend_mma_entries = LaunchAttendMmaEntries,
      .merge_entries = LaunchMergeEntries,
      .recompute_entries = LaunchRecomputeEntries,
      .project = LaunchProject,
      .softmax_rows = LaunchSoftmaxRows,
      .finish_output = LaunchFinishOutput,
      .rearrange = LaunchRearrange,
      .rearrange_entries = LaunchRearrangeEntries,
  };
  return table;
}

}  // namespace attention::cuda
