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

/// How a job is cut into slices: by batch entries or, of a single entry, by kv
/// heads with the query heads that read them; `count` of `total` in a slice.
struct Slicing {
  bool of_heads = false;
  int64_t total = 1;
  int64_t count = 1;
};

/// One slice where a job is better done as a whole, because it is small, has
/// one entry and heads that do not stand alone, drops weights (whose pattern
/// counts entries and heads) or has large tensors that they share. `plan` is
/// the whole job's. Not for tensors that lie on the device.
Slicing SlicingOf(const ValidatedProblem& problem, const Plan& plan,
                  const PlanOptions& options);

/// One job on two streams, in slices: while the device computes
/// one of them, the next one is brought to it, and the one before fetched. The
/// results have the bits of the whole, because nothing in a plan that they
/// depend on follows from the batch, or from the heads where these are cut.
class SlicedJob {
 public:
  /// The last slice may have less than the others.
  SlicedJob(AttentionJob& job, const RunContext& context, Device& device,
            const PlanOptions& options, const Slicing& slicing);

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
  const Slicing slicing_;
  int64_t slice_bytes_ = 0;
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_SLICED_JOB_H_
