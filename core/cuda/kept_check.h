#ifndef ATTENTION_CORE_CUDA_KEPT_CHECK_H_
#define ATTENTION_CORE_CUDA_KEPT_CHECK_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "core/cuda/device.h"
#include "core/cuda/plan.h"
#include "core/self_check.h"

namespace attention::cuda {

/// The part of the self check in which pages of sequences stay on the device
/// (device_pages.h). For each kind of kernel that reads them, queries attend a
/// sequence, which is appended to and attended again, and a fork of it that is
/// written to; then two sequences that do not fit beside each other under a
/// limit of kKeptCheckMemory. Results are compared with the reference's, and
/// what was brought with what the device had not yet. `plan` as
/// CudaBackendOptions has it. OK; INTERNAL with the first difference; or the
/// device's error.
absl::Status CheckKeptPages(std::unique_ptr<Device> device,
                            const PlanOptions& plan, const OnCase& on_case);

/// Bytes of device memory, at most.
inline constexpr int64_t kKeptCheckMemory = int64_t{6} << 20;

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KEPT_CHECK_H_
