#include "core/cuda/run_jobs.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cuda/chosen_job.h"
#include "core/cuda/entries_job.h"
#include "core/cuda/job_transfer.h"

namespace attention::cuda {
namespace {

absl::Status RunAlone(ChosenJob& chosen, const RunContext& context) {
  AttentionJob& job = *chosen.job;
  DeviceRunner& runner = *chosen.runner;
  if (job.stop.stop_requested()) {
    return absl::CancelledError("stopped before the first tile");
  }
  if (chosen.plan.method == Method::kNothing) {
    return chosen.on_device ? runner.RunEmpty(job)
                            : WriteEmptyResults(job, nullptr);
  }
  absl::Status status =
      chosen.slices.size() > 1
          ? runner.RunSliced(job, context, chosen.plan, chosen.options,
                             std::move(chosen.slices), chosen.share)
          : runner.Run(job, context, chosen.plan, chosen.share);
  if (status.ok()) runner.NoteProblem();
  return status;
}

// What a launch has room for.
class Room {
 public:
  explicit Room(const PlanOptions& options) : options_(options) {}

  bool Takes(const Plan& plan) const {
    return bytes_ + plan.bytes <= options_.launch_bytes &&
           blocks_ + MostBlocks(plan) <= kMostGridBlocks;
  }
  void Add(const Plan& plan) {
    bytes_ += plan.bytes;
    blocks_ += MostBlocks(plan);
  }
  void Clear() { bytes_ = blocks_ = 0; }

 private:
  const PlanOptions& options_;
  int64_t bytes_ = 0;
  int64_t blocks_ = 0;
};

// Jobs of one device that are stopped together, and fit into one launch.
class Together {
 public:
  Together(const RunContext& context, const PlanOptions& options)
      : context_(context), room_(options) {}

  // Whether one more fits, to those that are there.
  bool Takes(const ChosenJob& chosen) const {
    return jobs_.empty() ||
           (jobs_[0].runner == chosen.runner &&
            jobs_[0].job->stop == chosen.job->stop && room_.Takes(chosen.plan));
  }

  void Add(ChosenJob chosen) {
    room_.Add(chosen.plan);
    jobs_.push_back(std::move(chosen));
  }

  // Computes what is there, and has nothing any more.
  void Run() {
    if (jobs_.empty()) return;
    DeviceRunner& runner = *jobs_[0].runner;
    const absl::Status status = RunEntries(runner);
    // What does not fit together may fit alone.
    const bool alone = absl::IsResourceExhausted(status);
    for (ChosenJob& chosen : jobs_) {
      if (alone && chosen.NeedsEntries()) chosen.MakePlan(false);
      chosen.job->status = alone ? RunAlone(chosen, context_) : status;
      if (status.ok()) runner.NoteProblem();
    }
    jobs_.clear();
    room_.Clear();
  }

 private:
  absl::Status RunEntries(DeviceRunner& runner) const {
    if (jobs_.size() == 1 && !jobs_[0].NeedsEntries()) {
      return absl::ResourceExhaustedError("one job");
    }
    std::vector<EntriesJob::Entry> entries;
    entries.reserve(jobs_.size());
    for (const ChosenJob& chosen : jobs_) entries.push_back(chosen.AsEntry());
    EntriesJob job(std::move(entries), context_, runner.device());
    return runner.RunEntries(job, *jobs_[0].job, jobs_[0].share);
  }

  const RunContext& context_;
  Room room_;
  std::vector<ChosenJob> jobs_;
};

}  // namespace

void RunJobs(absl::Span<AttentionJob* const> jobs, const RunContext& context,
             MemoryShare share, const PlanOptions& options,
             const DeviceRunners& runners) {
  DeviceRunner* const turn = runners.Next();
  Together together(context, options);
  for (AttentionJob* const job : jobs) {
    absl::StatusOr<ChosenJob> chosen =
        ChooseForJob(*job, turn, share, options, runners);
    if (!chosen.ok()) {
      job->status = chosen.status();
      continue;
    }
    if (!chosen->ServesEntries() ||
        (jobs.size() == 1 && !chosen->NeedsEntries())) {
      job->status = RunAlone(*chosen, context);
      continue;
    }
    if (!together.Takes(*chosen)) together.Run();
    together.Add(*std::move(chosen));
  }
  together.Run();
}

int64_t CountLaunches(absl::Span<const ValidatedProblem* const> problems,
                      bool keys_in_place, const PlanOptions& options,
                      const DeviceProperties& device) {
  int64_t launches = 0;
  bool shares = false;  // whether a launch was begun that others may join
  Room room(options);
  for (const ValidatedProblem* const problem : problems) {
    InPlace in_place = InPlaceOf(*problem, {});
    if (keys_in_place) in_place.key = in_place.value = true;
    const Plan plan = MakePlan(*problem, device, options, in_place);
    if (!ServesEntries(*problem, plan) ||
        SlicesOf(*problem, plan, options).size() > 1) {
      ++launches;
      continue;
    }
    if (!shares || !room.Takes(plan)) {
      ++launches;
      room.Clear();
    }
    shares = true;
    room.Add(plan);
  }
  return launches;
}

}  // namespace attention::cuda
