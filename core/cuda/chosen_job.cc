#include "core/cuda/chosen_job.h"

#include "absl/strings/str_cat.h"
#include "core/job_device.h"

namespace attention::cuda {

bool ChosenJob::ServesEntries() const {
  return slices.size() == 1 && cuda::ServesEntries(*job->problem, plan);
}

void ChosenJob::MakePlan(bool keys_in_place) {
  InPlace in_place = InPlaceOf(*job->problem, job->outputs);
  if (keys_in_place) in_place.key = in_place.value = true;
  plan = cuda::MakePlan(*job->problem, runner->device().properties(), options,
                        in_place);
  slices = SlicesOf(*job->problem, plan, options);
}

EntriesJob::Entry ChosenJob::AsEntry() const {
  ChosenJob entry = *this;
  // The plan so far brings pages of the host into one piece.
  if (pages && !pages->on_device) entry.MakePlan(true);
  return {.job = entry.job, .plan = entry.plan, .pages = entry.pages};
}

absl::StatusOr<ChosenJob> ChooseForJob(AttentionJob& job, DeviceRunner* turn,
                                       MemoryShare share,
                                       const PlanOptions& options,
                                       const DeviceRunners& runners) {
  const absl::StatusOr<std::optional<int>> device =
      DeviceOf(absl::MakeConstSpan(&job, 1));
  if (!device.ok()) return device.status();
  // A device may have been lost since.
  if (turn != nullptr && !turn->device().Health().ok()) turn = runners.Next();
  ChosenJob chosen = {.job = &job,
                      .runner = *device ? runners.Of(**device) : turn,
                      .on_device = device->has_value(),
                      .share = share,
                      .options = options};
  if (chosen.runner == nullptr && *device) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensors lie on CUDA device ", **device,
                     ", which this backend does not compute on"));
  }
  if (chosen.runner == nullptr) return runners.Supports(*job.problem);
  if (!chosen.runner->device().Health().ok()) {
    return chosen.runner->device().Health();
  }
  chosen.pages = PagedKeysOf(*job.problem);
  chosen.MakePlan(chosen.NeedsEntries());
  if (chosen.NeedsEntries() && !chosen.ServesEntries()) {
    chosen.pages.reset();
    chosen.MakePlan(false);
  }
  if (chosen.plan.method == Method::kGemm &&
      !chosen.runner->device().LoadGemm().ok()) {
    chosen.options.gemm = false;
    chosen.MakePlan(false);
  }
  job.kernel = chosen.plan.kernel;
  if (job.stop.stop_requested()) {
    return absl::CancelledError("stopped before the first tile");
  }
  return chosen;
}

}  // namespace attention::cuda
