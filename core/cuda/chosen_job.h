#ifndef ATTENTION_CORE_CUDA_CHOSEN_JOB_H_
#define ATTENTION_CORE_CUDA_CHOSEN_JOB_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/backend.h"
#include "core/cuda/device_runner.h"
#include "core/cuda/device_runners.h"
#include "core/cuda/entries_job.h"
#include "core/cuda/paged_keys.h"
#include "core/cuda/plan.h"
#include "core/cuda/sliced_job.h"

namespace attention::cuda {

/// A job, where it is to be computed, and how.
struct ChosenJob {
  AttentionJob* job = nullptr;
  DeviceRunner* runner = nullptr;
  bool on_device = false;  // some of its tensors are
  MemoryShare share = MemoryShare::kAll;
  PlanOptions options = {};
  Plan plan = {};
  std::vector<Slice> slices = {};
  std::optional<PagedKeys> pages = {};

  /// Whether it may share launches with others; with pages in the device's
  /// memory it does in any case, for they are not brought into one piece.
  bool ServesEntries() const;
  bool NeedsEntries() const { return pages && pages->on_device; }

  /// The plan and the slices, with keys where they lie or brought.
  void MakePlan(bool keys_in_place);
  /// As one of several in a launch.
  EntriesJob::Entry AsEntry() const;
};

/// Chooses the device that tensors of `job` lie on, or else `turn`, the one
/// whose turn it is (null where all are lost). INVALID_ARGUMENT for tensors on
/// several devices, or on one that is not among `runners`; UNAVAILABLE where
/// the device is lost; CANCELLED where the job was to stop before it began.
absl::StatusOr<ChosenJob> ChooseForJob(AttentionJob& job, DeviceRunner* turn,
                                       MemoryShare share,
                                       const PlanOptions& options,
                                       const DeviceRunners& runners);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_CHOSEN_JOB_H_
