#include "core/cuda/cuda_backend.h"

#include <atomic>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/cuda/device_runner.h"
#include "core/cuda/entries_job.h"
#include "core/cuda/job_transfer.h"
#include "core/cuda/kept_jobs.h"
#include "core/cuda/paged_keys.h"
#include "core/cuda/sliced_job.h"
#include "core/job_device.h"

namespace attention {
namespace {

using cuda::DeviceRunner;
using cuda::EntriesJob;
using cuda::KeptJobs;
using cuda::MemoryShare;
using cuda::Plan;

// How a job is to be computed.
struct Chosen {
  AttentionJob* job = nullptr;
  DeviceRunner* runner = nullptr;
  bool on_device = false;  // some of its tensors are
  MemoryShare share = MemoryShare::kAll;
  cuda::PlanOptions options = {};
  Plan plan = {};
  std::vector<cuda::Slice> slices = {};
  std::optional<cuda::PagedKeys> pages = {};

  /// Whether it may share launches with others; with pages in the device's
  /// memory it does in any case, for they are not brought into one piece.
  bool ServesEntries() const {
    return slices.size() == 1 && cuda::ServesEntries(*job->problem, plan);
  }
  bool NeedsEntries() const { return pages && pages->on_device; }

  void MakePlan(bool keys_in_place) {
    cuda::InPlace in_place = cuda::InPlaceOf(*job->problem, job->outputs);
    if (keys_in_place) in_place.key = in_place.value = true;
    plan = cuda::MakePlan(*job->problem, runner->device().properties(), options,
                          in_place);
    slices = cuda::SlicesOf(*job->problem, plan, options);
  }
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(cuda::Devices devices, const CudaBackendOptions& options)
      : options_(options) {
    for (auto& device : devices) {
      runners_.push_back(std::make_unique<DeviceRunner>(
          std::move(device), options_.memory_limit, options_.stop_grace));
    }
  }

  absl::string_view name() const override { return options_.name; }

  // "sm_90 (NVIDIA H200), sm_90 (NVIDIA H200)"
  std::string instruction_set() const override {
    std::string all;
    for (const auto& runner : runners_) {
      const cuda::DeviceProperties& device = runner->device().properties();
      absl::StrAppend(&all, all.empty() ? "" : ", ", "sm_",
                      device.compute_capability, " (", device.name, ")");
    }
    return all;
  }

  bool experimental() const override { return options_.experimental; }
  bool waits() const override { return true; }
  bool reaches_devices() const override { return true; }

  absl::StatusOr<std::unique_ptr<DeviceMemory>> MapDeviceMemory(
      absl::string_view handle, int64_t device, int64_t bytes) const override {
    if (handle.size() != cuda::kSharedHandleBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "raw_handle: ", handle.size(), " bytes (a cudaIpcMemHandle_t has ",
          cuda::kSharedHandleBytes, ")"));
    }
    if (const DeviceRunner* runner = RunnerOf(device)) {
      return runner->Map(handle, bytes);
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "device_id: ", device, " (the server computes on ",
        absl::StrJoin(runners_, ", ",
                      [](std::string* known, const auto& runner) {
                        absl::StrAppend(known,
                                        runner->device().properties().ordinal);
                      }),
        ")"));
  }

  // One device pins it for all.
  std::unique_ptr<PinnedMemory> PinHostMemory(
      absl::Span<std::byte> memory) const override {
    DeviceRunner* const runner = NextRunner();
    return runner == nullptr ? nullptr : runner->Pin(memory);
  }

  absl::Status health() const override {
    size_t lost = 0;
    std::string reasons;
    for (const auto& runner : runners_) {
      const absl::Status status = runner->device().Health();
      if (status.ok()) continue;
      ++lost;
      absl::StrAppend(&reasons, reasons.empty() ? "" : "; ",
                      runner->device().properties().name, ": ",
                      status.message());
    }
    if (lost == 0) return absl::OkStatus();
    return lost == runners_.size() ? absl::UnavailableError(reasons)
                                   : absl::InternalError(reasons);
  }

  std::vector<BackendDevice> devices() const override {
    std::vector<BackendDevice> all;
    for (const auto& runner : runners_) {
      const cuda::DeviceProperties& device = runner->device().properties();
      all.push_back({device.name, device.memory});
    }
    return all;
  }

  std::vector<DeviceFigures> ReadDevices() const override {
    std::vector<DeviceFigures> all;
    for (const auto& runner : runners_) all.push_back(runner->Read());
    return all;
  }

  absl::Status Supports(const ValidatedProblem& problem) const override {
    absl::Status status = absl::UnavailableError("no device");
    for (const auto& runner : runners_) {
      status = runner->device().Health();
      if (!status.ok()) continue;
      return cuda::CheckSupport(problem, runner->device().properties());
    }
    return status;
  }

  bool KeepsKeys(const ValidatedProblem& problem) const override {
    if (!cuda::HasKeptPages(problem)) return false;
    DeviceRunner* const runner = FirstHealthy(problem.key_value[0].page);
    return runner != nullptr && runner->pages().Fits(problem.key_value);
  }

  void Run(absl::Span<AttentionJob> jobs,
           const RunContext& context) const override {
    std::vector<AttentionJob*> others;
    std::map<DeviceRunner*, KeptJobs> kept;
    for (AttentionJob& job : jobs) {
      DeviceRunner* const runner = RunnerOfPages(job);
      if (runner == nullptr ||
          !kept.try_emplace(runner, *runner).first->second.Add(job)) {
        others.push_back(&job);
      }
    }
    for (auto& [runner, of_runner] : kept) {
      const std::vector<AttentionJob*> left =
          of_runner.Run([&](absl::Span<AttentionJob* const> on_device) {
            RunJobs(on_device, context, MemoryShare::kBesidePages);
          });
      others.insert(others.end(), left.begin(), left.end());
    }
    if (!others.empty()) RunJobs(others, context, MemoryShare::kAll);
  }

 private:
  void RunJobs(absl::Span<AttentionJob* const> jobs, const RunContext& context,
               MemoryShare share) const {
    DeviceRunner* const turn = NextRunner();
    std::vector<Chosen> together;
    int64_t bytes = 0;
    int64_t blocks = 0;
    const auto run_together = [&] {
      RunTogether(together, context);
      together.clear();
      bytes = blocks = 0;
    };
    for (AttentionJob* const job : jobs) {
      absl::StatusOr<Chosen> chosen = Choose(*job, turn, share);
      if (!chosen.ok()) {
        job->status = chosen.status();
        continue;
      }
      if (!chosen->ServesEntries() ||
          (jobs.size() == 1 && !chosen->NeedsEntries())) {
        job->status = RunAlone(*chosen, context);
        continue;
      }
      if (!together.empty() &&
          (together[0].runner != chosen->runner ||
           together[0].job->stop != job->stop ||
           bytes + chosen->plan.bytes > options_.plan.launch_bytes ||
           blocks + cuda::MostBlocks(chosen->plan) > cuda::kMostGridBlocks)) {
        run_together();
      }
      bytes += chosen->plan.bytes;
      blocks += cuda::MostBlocks(chosen->plan);
      together.push_back(*std::move(chosen));
    }
    if (!together.empty()) run_together();
  }

  // Where a job is to be computed, and how; `turn` is the device whose turn it
  // is, null where all are lost.
  absl::StatusOr<Chosen> Choose(AttentionJob& job, DeviceRunner* turn,
                                MemoryShare share) const {
    const absl::StatusOr<std::optional<int>> device =
        DeviceOf(absl::MakeConstSpan(&job, 1));
    if (!device.ok()) return device.status();
    // A device may have been lost since.
    if (turn != nullptr && !turn->device().Health().ok()) turn = NextRunner();
    Chosen chosen = {.job = &job,
                     .runner = *device ? RunnerOf(**device) : turn,
                     .on_device = device->has_value(),
                     .share = share,
                     .options = options_.plan};
    if (chosen.runner == nullptr && *device) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensors lie on CUDA device ", **device,
                       ", which this backend does not compute on"));
    }
    if (chosen.runner == nullptr) return Supports(*job.problem);
    if (!chosen.runner->device().Health().ok()) {
      return chosen.runner->device().Health();
    }
    chosen.pages = cuda::PagedKeysOf(*job.problem);
    chosen.MakePlan(chosen.NeedsEntries());
    if (chosen.NeedsEntries() && !chosen.ServesEntries()) {
      chosen.pages.reset();
      chosen.MakePlan(false);
    }
    if (chosen.plan.method == cuda::Method::kGemm &&
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

  absl::Status RunAlone(Chosen& chosen, const RunContext& context) const {
    AttentionJob& job = *chosen.job;
    DeviceRunner& runner = *chosen.runner;
    if (job.stop.stop_requested()) {
      return absl::CancelledError("stopped before the first tile");
    }
    if (chosen.plan.method == cuda::Method::kNothing) {
      return chosen.on_device ? runner.RunEmpty(job)
                              : cuda::WriteEmptyResults(job, nullptr);
    }
    absl::Status status =
        chosen.slices.size() > 1
            ? runner.RunSliced(job, context, chosen.plan, chosen.options,
                               std::move(chosen.slices), chosen.share)
            : runner.Run(job, context, chosen.plan, chosen.share);
    if (status.ok()) runner.NoteProblem();
    return status;
  }

  // Of one device, and to be stopped together.
  void RunTogether(std::vector<Chosen>& jobs, const RunContext& context) const {
    DeviceRunner& runner = *jobs[0].runner;
    absl::Status status = absl::ResourceExhaustedError("one job");
    if (jobs.size() > 1 || jobs[0].NeedsEntries()) {
      std::vector<EntriesJob::Entry> entries;
      entries.reserve(jobs.size());
      for (const Chosen& chosen : jobs) entries.push_back(EntryOf(chosen));
      EntriesJob job(std::move(entries), context, runner.device());
      status = runner.RunEntries(job, *jobs[0].job, jobs[0].share);
    }
    // What does not fit together may fit alone.
    const bool alone = absl::IsResourceExhausted(status);
    for (Chosen& chosen : jobs) {
      if (alone && chosen.NeedsEntries()) chosen.MakePlan(false);
      chosen.job->status = alone ? RunAlone(chosen, context) : status;
      if (status.ok()) runner.NoteProblem();
    }
  }

  static EntriesJob::Entry EntryOf(const Chosen& chosen) {
    Chosen entry = chosen;
    // The plan so far brings pages of the host into one piece.
    if (entry.pages && !entry.pages->on_device) entry.MakePlan(true);
    return {.job = entry.job, .plan = entry.plan, .pages = entry.pages};
  }

  // The device that tensors of a job lie on.
  DeviceRunner* RunnerOf(int64_t ordinal) const {
    for (const auto& runner : runners_) {
      if (runner->device().properties().ordinal == ordinal) {
        return runner.get();
      }
    }
    return nullptr;
  }

  // Where the pages of a job are to be kept: always on one device, that of its
  // other tensors where they have one. Null where it has no such pages, or
  // where nothing is computed.
  DeviceRunner* RunnerOfPages(const AttentionJob& job) const {
    if (!cuda::HasKeptPages(*job.problem)) return nullptr;
    const absl::StatusOr<std::optional<int>> device =
        DeviceOf(absl::MakeConstSpan(&job, 1));
    if (!device.ok()) return nullptr;  // Choose() says why
    DeviceRunner* const runner =
        *device ? RunnerOf(**device)
                : FirstHealthy(job.problem->key_value[0].page);
    return runner != nullptr && runner->device().Health().ok() ? runner
                                                               : nullptr;
  }

  // Devices in turn, those that are lost left out; null where all are.
  DeviceRunner* NextRunner() const {
    return FirstHealthy(next_.fetch_add(1, std::memory_order_relaxed));
  }

  DeviceRunner* FirstHealthy(size_t first) const {
    for (size_t n = 0; n < runners_.size(); ++n) {
      DeviceRunner& runner = *runners_[(first + n) % runners_.size()];
      if (runner.device().Health().ok()) return &runner;
    }
    return nullptr;
  }

  CudaBackendOptions options_;
  std::vector<std::unique_ptr<DeviceRunner>> runners_;
  mutable std::atomic<size_t> next_ = 0;
};

}  // namespace

std::unique_ptr<Backend> MakeCudaBackend(cuda::Devices devices,
                                         const CudaBackendOptions& options) {
  return std::make_unique<CudaBackend>(std::move(devices), options);
}

}  // namespace attention
