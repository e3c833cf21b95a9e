#ifndef ATTENTION_CORE_CUDA_CUDA_BACKEND_H_
#define ATTENTION_CORE_CUDA_CUDA_BACKEND_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/strings/string_view.h"
#include "core/backend.h"
#include "core/cuda/plan.h"
#include "core/cuda/plugin.h"

namespace attention {

/// True until the kernels have passed the tests of tests/gpu on real devices:
/// "auto" checks the backend against the reference before it uses it.
inline constexpr bool kCudaIsExperimental = true;

struct CudaBackendOptions {
  absl::string_view name = "cuda";  // static text
  /// Bytes of device memory that are taken of each device, at most; nothing
  /// means cuda::MemoryPool::kShare of what is free at the first job.
  std::optional<int64_t> memory_limit = {};
  bool experimental = kCudaIsExperimental;
  /// How long a device may go on with a job that was to stop, without coming to
  /// an end of any other's work (cuda::Watch). After that it is given up:
  /// nothing is computed on it any more.
  std::chrono::nanoseconds stop_grace = std::chrono::seconds(10);
  cuda::PlanOptions plan = {};
};

/// Computes on `devices`, one or more, each of which takes jobs in turn: a job
/// is one device's, on a stream of its own. A job that needs more memory than
/// the limit is RESOURCE_EXHAUSTED; a device's error is the job's own
/// (INTERNAL). A job that was to stop and does not is CANCELLED, and its device
/// lost. Once no device is left that works, Supports() says UNAVAILABLE
/// with the reason, and health() too.
std::unique_ptr<Backend> MakeCudaBackend(
    cuda::Devices devices, const CudaBackendOptions& options = {});

}  // namespace attention

#endif  // ATTENTION_CORE_CUDA_CUDA_BACKEND_H_
