#ifndef ATTENTION_CORE_CUDA_SLICED_JOB_H_
#define ATTENTION_CORE_CUDA_SLICED_JOB_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "core/backend.h"
#include "core/cuda/device.h"
#include "core/cuda/plan.h"

namespace attention::cuda {

/// Batch entries of a slice: all of them where a job is better done as a whole,
/// because it is small, has one entry, drops weights (whose pattern counts the
/// entries) or has large tensors that the entries share. `plan` is the whole
/// job's. Not for tensors that lie on the device.
int64_t EntriesOfSlice(const ValidatedProblem& problem, const Plan& plan,
                       const PlanOptions& options);

/// One job on two streams, in slices of its batch: while the device computes
/// one of them, the next one is brought to it, and the one before fetched. The
/// results have the bits of the whole, because nothing in a plan that they
/// depend on follows from the batch.
class SlicedJob {
 public:
  /// Slices of `entries`, the last one of no more.
  SlicedJob(AttentionJob& job, const RunContext& context, Device& device,
            const PlanOptions& options, int64_t entries);

  /// Of device memory, for Run().
  int64_t bytes() const { return 2 * slice_bytes_; }

  /// OK, CANCELLED or the device's error. When it returns, both streams are
  /// done with `memory`.
  absl::Status Run(const std::array<Stream*, 2>& streams, std::byte* memory);

 private:
  class Slice;

  AttentionJob& job_;
  const RunContext& context_;
  Device& device_;
  const PlanOptions& options_;
  const int64_t entries_;
  int64_t slice_bytes_ = 0;
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_SLICED_JOB_H_
