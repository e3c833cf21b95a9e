#ifndef ATTENTION_CORE_CUDA_ENTRIES_JOB_H_
#define ATTENTION_CORE_CUDA_ENTRIES_JOB_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/backend.h"
#include "core/cuda/device.h"
#include "core/cuda/paged_keys.h"
#include "core/cuda/plan.h"

namespace attention::cuda {

/// Whether a problem of this plan may be one of an EntriesJob: attend or
/// attend_mma compute it, from rows as the caller gave them, without weights.
bool ServesEntries(const ValidatedProblem& problem, const Plan& plan);

/// Blocks that a problem of this plan may have in a launch, and more.
int64_t MostBlocks(const Plan& plan);

/// Several jobs on one stream, in one launch for each kernel that they need:
/// one for sixty-four steps of decoding, a few where their lengths call for
/// different ones. Each has the bits that it has alone. They are stopped
/// together, between launches.
class EntriesJob {
 public:
  struct Entry {
    AttentionJob* job = nullptr;
    /// Of a job with pages, with keys and values in place.
    Plan plan;
    std::optional<PagedKeys> pages = {};
  };

  /// One or more entries with MostBlocks() below kMostGridBlocks together.
  EntriesJob(std::vector<Entry> entries, const RunContext& context,
             Device& device);

  /// Of device memory, for Run().
  int64_t bytes() const { return bytes_; }

  /// OK, CANCELLED or the device's error, which is that of every job. When it
  /// returns, the stream is done with `memory`.
  absl::Status Run(Stream& stream, std::byte* memory);

 private:
  using Kernel = int (*)(const EntriesArgs&, const AttentionArgs& like,
                         const LaunchShape&, void* stream);
  // Of entries first ... first + count - 1.
  struct Launch {
    absl::string_view kernel;
    Kernel run = nullptr;
    size_t first = 0;
    size_t count = 0;
    size_t first_blocks = 0;  // index of the first one's
    LaunchShape shape = {};
  };

  // Room for so many bytes; its offset.
  int64_t Place(int64_t bytes);
  void PlaceScratchAndResults();
  // Fills in args_ and page_addresses_, entries of one kernel side by side.
  void SetArgs();
  using ShapeOf = LaunchShape (*)(const AttentionArgs&);
  void AddLaunch(absl::string_view kernel, Kernel run, size_t first,
                 size_t count, ShapeOf shape_of);
  void AddLaunches();
  absl::Status Upload();
  absl::Status RunLaunches();
  absl::Status Download();
  // Where a row was marked; brings the results once more.
  absl::Status Recompute();
  // CANCELLED once a stop was requested; otherwise counts a launch.
  absl::Status BeginLaunch(const Launch& launch);

  std::vector<Entry> entries_;
  const RunContext& context_;
  const KernelTable& kernels_;
  Stream* stream_ = nullptr;
  std::byte* memory_ = nullptr;

  // In device memory: of each entry its inputs, and what its plan is told the
  // place of; of all of them the rest.
  std::vector<int64_t> offsets_;
  int64_t marks_ = 0, mark_bytes_ = 0;
  int64_t pages_ = 0, page_addresses_at_ = 0, args_at_ = 0, blocks_at_ = 0;
  int64_t bytes_ = 0;

  PageUploads uploads_;
  std::vector<const void*> page_addresses_;
  // Each as many as there are entries.
  std::vector<size_t> order_;  // of entries, that of args_
  std::vector<AttentionArgs> args_;
  std::vector<int64_t> first_blocks_;
  std::vector<Launch> launches_;
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_ENTRIES_JOB_H_
