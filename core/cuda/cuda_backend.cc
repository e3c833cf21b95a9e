#include "core/cuda/cuda_backend.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/cuda/device_runner.h"
#include "core/cuda/device_runners.h"
#include "core/cuda/kept_jobs.h"
#include "core/cuda/run_jobs.h"
#include "core/job_device.h"

namespace attention {
namespace {

using cuda::DeviceRunner;
using cuda::KeptJobs;
using cuda::MemoryShare;

class CudaBackend final : public Backend {
 public:
  CudaBackend(cuda::Devices devices, const CudaBackendOptions& options)
      : options_(options),
        runners_(std::move(devices), options.memory_limit, options.stop_grace) {
  }

  absl::string_view name() const override { return options_.name; }

  // "sm_90 (NVIDIA H200), sm_90 (NVIDIA H200)"
  std::string instruction_set() const override {
    std::string all;
    for (const auto& runner : runners_.all()) {
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
    if (const DeviceRunner* runner = runners_.Of(device)) {
      return runner->Map(handle, bytes);
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "device_id: ", device, " (the server computes on ",
        absl::StrJoin(runners_.all(), ", ",
                      [](std::string* known, const auto& runner) {
                        absl::StrAppend(known,
                                        runner->device().properties().ordinal);
                      }),
        ")"));
  }

  // One device pins it for all, and whose turn it is stays.
  std::unique_ptr<PinnedMemory> PinHostMemory(
      absl::Span<std::byte> memory) const override {
    DeviceRunner* const runner = runners_.FirstHealthy(0);
    return runner == nullptr ? nullptr : runner->Pin(memory);
  }

  absl::Status health() const override { return runners_.Health(); }

  std::vector<BackendDevice> devices() const override {
    std::vector<BackendDevice> all;
    for (const auto& runner : runners_.all()) {
      const cuda::DeviceProperties& device = runner->device().properties();
      all.push_back({device.name, device.memory});
    }
    return all;
  }

  std::vector<DeviceFigures> ReadDevices() const override {
    std::vector<DeviceFigures> all;
    for (const auto& runner : runners_.all()) all.push_back(runner->Read());
    return all;
  }

  absl::Status Supports(const ValidatedProblem& problem) const override {
    return runners_.Supports(problem);
  }

  bool KeepsKeys(const ValidatedProblem& problem) const override {
    if (!cuda::HasKeptPages(problem)) return false;
    DeviceRunner* const runner =
        runners_.FirstHealthy(problem.key_value[0].page);
    return runner != nullptr && runner->pages().Fits(problem.key_value);
  }

  // As the first device would.
  int64_t CountLaunches(
      absl::Span<const ValidatedProblem* const> problems) const override {
    if (problems.size() < 2) return static_cast<int64_t>(problems.size());
    std::vector<const ValidatedProblem*> kept;
    std::vector<const ValidatedProblem*> others;
    for (const ValidatedProblem* const problem : problems) {
      (KeepsKeys(*problem) ? kept : others).push_back(problem);
    }
    const cuda::DeviceProperties& device =
        runners_.all()[0]->device().properties();
    return cuda::CountLaunches(kept, true, options_.plan, device) +
           cuda::CountLaunches(others, false, options_.plan, device);
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
    cuda::RunJobs(jobs, context, share, options_.plan, runners_);
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
        *device ? runners_.Of(**device)
                : runners_.FirstHealthy(job.problem->key_value[0].page);
    return runner != nullptr && runner->device().Health().ok() ? runner
                                                               : nullptr;
  }

  CudaBackendOptions options_;
  cuda::DeviceRunners runners_;
};

}  // namespace

std::unique_ptr<Backend> MakeCudaBackend(cuda::Devices devices,
                                         const CudaBackendOptions& options) {
  return std::make_unique<CudaBackend>(std::move(devices), options);
}

}  // namespace attention
