#ifndef ATTENTION_CORE_JOB_DEVICE_H_
#define ATTENTION_CORE_JOB_DEVICE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/backend.h"

namespace attention {

/// The CUDA device in whose memory some tensors of jobs lie, inputs and wanted
/// results alike; nothing where all are in host memory. INVALID_ARGUMENT,
/// naming two of them, where they lie on different devices:
///   value: lies on CUDA device 1, query on device 0 (one device is expected)
absl::StatusOr<std::optional<int>> DeviceOf(
    absl::Span<const AttentionJob> jobs);
/// The same of problems whose results have no place yet: of their inputs.
absl::StatusOr<std::optional<int>> DeviceOf(
    absl::Span<const ValidatedProblem* const> problems);

}  // namespace attention

#endif  // ATTENTION_CORE_JOB_DEVICE_H_
