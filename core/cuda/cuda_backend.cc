#include "core/cuda/cuda_backend.h"

#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/cuda_job.h"
#include "core/cuda/memory_pool.h"

namespace attention {
namespace {

using cuda::Device;
using cuda::MemoryPool;
using cuda::Plan;
using cuda::Stream;

// A device with what is kept on it between jobs.
class Lane {
 public:
  Lane(std::unique_ptr<Device> device, std::optional<int64_t> memory_limit)
      : device_(std::move(device)), pool_(*device_, memory_limit) {}

  Device& device() { return *device_; }
  const Device& device() const { return *device_; }

  absl::Status Run(AttentionJob& job, const RunContext& context,
                   const Plan& plan) {
    absl::StatusOr<MemoryPool::Block> memory = pool_.Take(plan.bytes, job.stop);
    if (!memory.ok()) return memory.status();
    absl::StatusOr<std::unique_ptr<Stream>> stream = TakeStream();
    if (!stream.ok()) return stream.status();
    absl::Status status =
        cuda::CudaJob(job, context, plan, *device_, **stream, memory->data())
            .Run();
    // A stream that has failed is not used again.
    if (status.ok() || absl::IsCancelled(status)) {
      const std::lock_guard lock(mutex_);
      streams_.push_back(*std::move(stream));
    }
    return status;
  }

 private:
  // As many as there have been jobs at once.
  absl::StatusOr<std::unique_ptr<Stream>> TakeStream() {
    {
      const std::lock_guard lock(mutex_);
      if (!streams_.empty()) {
        std::unique_ptr<Stream> stream = std::move(streams_.back());
        streams_.pop_back();
        return stream;
      }
    }
    return device_->NewStream();
  }

  const std::unique_ptr<Device> device_;
  MemoryPool pool_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(cuda::Devices devices, const CudaBackendOptions& options)
      : options_(options) {
    for (auto& device : devices) {
      lanes_.push_back(
          std::make_unique<Lane>(std::move(device), options_.memory_limit));
    }
  }

  absl::string_view name() const override { return options_.name; }

  // "sm_90 (NVIDIA H200), sm_90 (NVIDIA H200)"
  std::string instruction_set() const override {
    std::string all;
    for (const auto& lane : lanes_) {
      const cuda::DeviceProperties& device = lane->device().properties();
      absl::StrAppend(&all, all.empty() ? "" : ", ", "sm_",
                      device.compute_capability, " (", device.name, ")");
    }
    return all;
  }

  bool experimental() const override { return options_.experimental; }
  bool waits() const override { return true; }

  absl::Status health() const override {
    size_t lost = 0;
    std::string reasons;
    for (const auto& lane : lanes_) {
      const absl::Status status = lane->device().Health();
      if (status.ok()) continue;
      ++lost;
      absl::StrAppend(&reasons, reasons.empty() ? "" : "; ",
                      lane->device().properties().name, ": ", status.message());
    }
    if (lost == 0) return absl::OkStatus();
    return lost == lanes_.size() ? absl::UnavailableError(reasons)
                                 : absl::InternalError(reasons);
  }

  std::vector<BackendDevice> devices() const override {
    std::vector<BackendDevice> all;
    for (const auto& lane : lanes_) {
      const cuda::DeviceProperties& device = lane->device().properties();
      all.push_back({device.name, device.memory});
    }
    return all;
  }

  absl::Status Supports(const ValidatedProblem& problem) const override {
    absl::Status status = absl::UnavailableError("no device");
    for (const auto& lane : lanes_) {
      status = lane->device().Health();
      if (!status.ok()) continue;
      return cuda::CheckSupport(problem, lane->device().properties());
    }
    return status;
  }

  void Run(absl::Span<AttentionJob> jobs,
           const RunContext& context) const override {
    for (AttentionJob& job : jobs) job.status = RunOne(job, context);
  }

 private:
  absl::Status RunOne(AttentionJob& job, const RunContext& context) const {
    Lane* const lane = NextLane();
    if (lane == nullptr) return Supports(*job.problem);
    const Plan plan = cuda::MakePlan(*job.problem, lane->device().properties(),
                                     options_.plan);
    job.kernel = plan.kernel;
    if (job.stop.stop_requested()) {
      return absl::CancelledError("stopped before the first tile");
    }
    if (plan.method == cuda::Method::kNothing) {
      cuda::WriteEmptyResults(job);
      return absl::OkStatus();
    }
    return lane->Run(job, context, plan);
  }

  // Devices in turn, those that are lost left out; null where all are.
  Lane* NextLane() const {
    const size_t first = next_.fetch_add(1, std::memory_order_relaxed);
    for (size_t n = 0; n < lanes_.size(); ++n) {
      Lane& lane = *lanes_[(first + n) % lanes_.size()];
      if (lane.device().Health().ok()) return &lane;
    }
    return nullptr;
  }

  const CudaBackendOptions options_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  mutable std::atomic<size_t> next_ = 0;
};

}  // namespace

std::unique_ptr<Backend> MakeCudaBackend(cuda::Devices devices,
                                         const CudaBackendOptions& options) {
  return std::make_unique<CudaBackend>(std::move(devices), options);
}

}  // namespace attention
