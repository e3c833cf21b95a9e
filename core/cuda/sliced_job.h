#ifndef ATTENTION_CORE_CUDA_SLICED_JOB_H_
#define ATTENTION_CORE_CUDA_SLICED_JOB_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/backend.h"
#include "core/cuda/device.h"
#include "core/cuda/plan.h"

namespace attention::cuda {

/// Some of a job: batch entries, kv heads with the query heads that read them,
/// and rows of each of these.
struct Slice {
  struct Range {
    int64_t first = 0;
    int64_t count = 0;
  };
  Range entries, kv_heads, rows;
};

/// The slices that a job goes in, which cover it. One where it is better done
/// as a whole: it is small, or has large tensors that its entries or heads
/// share. Heads are cut of a single entry alone, and where they stand alone;
/// rows where one entry, or one head, computes long. `plan` is the whole job's.
std::vector<Slice> SlicesOf(const ValidatedProblem& problem, const Plan& plan,
                            const PlanOptions& options);

/// One job on two streams, in slices: while the device computes one of them,
/// the next one is brought to it, and the one before fetched. The results have
/// the bits of the whole, because nothing in a plan that they depend on follows
/// from what is cut.
class SlicedJob {
 public:
  SlicedJob(AttentionJob& job, const RunContext& context, Device& device,
            const PlanOptions& options, std::vector<Slice> slices);

  /// Of device memory, for Run().
  int64_t bytes() const { return 2 * slice_bytes_; }

  /// OK, CANCELLED or the device's error. When it returns, both streams are
  /// done with `memory`.
  absl::Status Run(const std::array<Stream*, 2>& streams, std::byte* memory);

 private:
  class Part;

  AttentionJob& job_;
  const RunContext& context_;
  Device& device_;
  const PlanOptions& options_;
  const std::vector<Slice> slices_;
  int64_t slice_bytes_ = 0;  // of the largest
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_SLICED_JOB_H_
