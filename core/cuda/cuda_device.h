#ifndef ATTENTION_CORE_CUDA_CUDA_DEVICE_H_
#define ATTENTION_CORE_CUDA_CUDA_DEVICE_H_

#include "absl/status/statusor.h"
#include "core/cuda/plugin.h"

namespace attention::cuda {

/// The oldest device that the kernels are compiled for, as 10 * major + minor:
/// it is the first with BF16 products.
inline constexpr int kLeastComputeCapability = 80;

/// The machine's CUDA devices, by the CUDA runtime. Those that are
/// too old are left out. UNAVAILABLE where none is left, with the reason.
/// A part of the plugin: the rest of the program cannot link it.
absl::StatusOr<Devices> OpenCudaDevices();

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_CUDA_DEVICE_H_
