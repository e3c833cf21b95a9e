#ifndef ATTENTION_CORE_CUDA_RUN_JOBS_H_
#define ATTENTION_CORE_CUDA_RUN_JOBS_H_

#include "absl/types/span.h"
#include "core/backend.h"
#include "core/cuda/device_runner.h"
#include "core/cuda/device_runners.h"
#include "core/cuda/plan.h"

namespace attention::cuda {

/// Computes `jobs`, each on the device that its tensors lie on, or else on the
/// one whose turn it is: together those that may share launches, by themselves
/// the others. Writes what became of each to its status: OK, what
/// ChooseForJob() says, or what DeviceRunner's functions do.
void RunJobs(absl::Span<AttentionJob* const> jobs, const RunContext& context,
             MemoryShare share, const PlanOptions& options,
             const DeviceRunners& runners);

/// How often RunJobs() begins anew for jobs of such problems that are stopped
/// together: once for those that share a launch. `keys_in_place`: whether their
/// keys are on the device.
int64_t CountLaunches(absl::Span<const ValidatedProblem* const> problems,
                      bool keys_in_place, const PlanOptions& options,
                      const DeviceProperties& device);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_RUN_JOBS_H_
