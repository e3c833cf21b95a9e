#include "core/cuda/kept_jobs.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace attention::cuda {
namespace {

ValidatedProblem OnDevice(ValidatedProblem problem,
                          const DevicePages::Hold& hold, int device) {
  for (size_t n = 0; n < problem.key_value.size(); ++n) {
    ValidatedProblem::Block& block = problem.key_value[n];
    const PagePlace place = hold.place(n);
    block.key.data = place.key;
    block.value.data = place.value;
    for (TensorView* view : {&block.key, &block.value}) {
      view->space = MemorySpace::kCudaDevice;
      view->device = device;
    }
    block.page = 0;
  }
  return problem;
}

}  // namespace

bool HasKeptPages(const ValidatedProblem& problem) {
  return problem.batch == 1 && !problem.key_value.empty() &&
         std::all_of(problem.key_value.begin(), problem.key_value.end(),
                     [](const auto& block) { return block.page != 0; });
}

bool KeptJobs::Add(AttentionJob& job) {
  std::optional<DevicePages::Hold> hold =
      runner_.pages().Take(job.problem->key_value, job.stop, job.look);
  if (!hold) return false;
  ValidatedProblem problem =
      OnDevice(*job.problem, *hold, runner_.device().properties().ordinal);
  Kept& kept =
      jobs_.emplace_back(Kept{&job, *std::move(hold), std::move(problem), job});
  kept.on_device.problem = &kept.problem;
  return true;
}

// Those that are stopped together wait for their pages together.
void KeptJobs::Bring() {
  for (auto first = jobs_.begin(), end = first; first != jobs_.end();
       first = end) {
    std::vector<const DevicePages::Hold*> holds;
    while (end != jobs_.end() && end->job->stop == first->job->stop) {
      holds.push_back(&end->hold);
      ++end;
    }
    const absl::Status status = runner_.BringPages(holds, *first->job);
    for (auto of = first; of != end; ++of) of->on_device.status = status;
  }
}

std::vector<AttentionJob*> KeptJobs::Run(
    absl::FunctionRef<void(absl::Span<AttentionJob* const>)> run) {
  Bring();
  std::vector<AttentionJob*> ready;
  for (Kept& kept : jobs_) {
    if (kept.on_device.status.ok()) ready.push_back(&kept.on_device);
  }
  if (!ready.empty()) run(ready);
  std::vector<AttentionJob*> without_room;
  for (Kept& kept : jobs_) {
    if (absl::IsResourceExhausted(kept.on_device.status)) {
      without_room.push_back(kept.job);
      continue;
    }
    kept.on_device.problem = kept.job->problem;
    *kept.job = std::move(kept.on_device);
  }
  jobs_.clear();  // whoever is computed from now on may need the memory
  return without_room;
}

}  // namespace attention::cuda
