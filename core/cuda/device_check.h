#ifndef ATTENTION_CORE_CUDA_DEVICE_CHECK_H_
#define ATTENTION_CORE_CUDA_DEVICE_CHECK_H_

#include "absl/status/status.h"
#include "core/cuda/device.h"
#include "core/self_check.h"

namespace attention::cuda {

/// The part of the self check that no problem in host memory reaches: tensors
/// of the device are rearranged, in every unit, and host memory that the device
/// copies by itself arrives and comes back, where the system lets it be pinned.
/// OK, or INTERNAL with what does not.
absl::Status CheckDevice(Device& device, const OnCase& on_case);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_DEVICE_CHECK_H_
