#include "core/cuda/cuda_backend.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/cuda/cuda_job.h"
#include "core/cuda/job_transfer.h"
#include "core/cuda/memory_pool.h"
#include "core/cuda/sliced_job.h"
#include "core/job_device.h"

namespace attention {
namespace {

using cuda::Device;
using cuda::MemoryPool;
using cuda::Plan;
using cuda::Stream;

// Another process's memory, mapped.
class MappedMemory final : public DeviceMemory {
 public:
  MappedMemory(std::shared_ptr<Device> device, std::byte* memory, int64_t bytes)
      : device_(std::move(device)),
        bytes_(memory, static_cast<size_t>(bytes)) {}
  ~MappedMemory() override { device_->CloseShared(bytes_.data()); }
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  int device() const override { return device_->properties().ordinal; }
  absl::Span<std::byte> bytes() const override { return bytes_; }
  absl::Status CopyToHost(const std::byte* from,
                          absl::Span<std::byte> to) const override {
    return device_->CopyToHost(from, to.data(),
                               static_cast<int64_t>(to.size()));
  }

 private:
  const std::shared_ptr<Device> device_;
  const absl::Span<std::byte> bytes_;
};

// Host memory that devices reach.
class PinnedPages final : public PinnedMemory {
 public:
  PinnedPages(std::shared_ptr<Device> device, absl::Span<std::byte> memory)
      : device_(std::move(device)), memory_(memory) {}
  ~PinnedPages() override { device_->UnpinHost(memory_); }
  PinnedPages(const PinnedPages&) = delete;
  PinnedPages& operator=(const PinnedPages&) = delete;

 private:
  const std::shared_ptr<Device> device_;
  const absl::Span<std::byte> memory_;
};

// A device with what is kept on it between jobs.
class DeviceRunner {
 public:
  DeviceRunner(std::unique_ptr<Device> device,
               const CudaBackendOptions& options)
      : device_(std::move(device)),
        grace_(options.stop_grace),
        pool_(*device_, options.memory_limit) {}

  Device& device() { return *device_; }
  const Device& device() const { return *device_; }

  absl::Status Run(AttentionJob& job, const RunContext& context,
                   const Plan& plan) {
    absl::StatusOr<MemoryPool::Block> memory = pool_.Take(plan.bytes, job.stop);
    if (!memory.ok()) return memory.status();
    return WithStream(job, [&](Stream& stream) {
      return cuda::CudaJob(job, context, plan, *device_, stream, memory->data())
          .Run();
    });
  }

  // `plan` is the whole job's.
  absl::Status RunSliced(AttentionJob& job, const RunContext& context,
                         const Plan& plan, const cuda::PlanOptions& options,
                         std::vector<cuda::Slice> slices) {
    cuda::SlicedJob sliced(job, context, *device_, options, std::move(slices));
    absl::StatusOr<MemoryPool::Block> memory =
        pool_.Take(sliced.bytes(), job.stop);
    // Two slices at once may need more than the whole.
    if (absl::IsResourceExhausted(memory.status()) &&
        plan.bytes < sliced.bytes()) {
      return Run(job, context, plan);
    }
    if (!memory.ok()) return memory.status();
    return WithStream(job, [&](Stream& first) {
      return WithStream(job, [&](Stream& second) {
        return sliced.Run({&first, &second}, memory->data());
      });
    });
  }

  // Of a problem for which nothing is computed.
  absl::Status RunEmpty(AttentionJob& job) {
    return WithStream(job, [&](Stream& stream) {
      absl::Status status = cuda::WriteEmptyResults(job, &stream);
      const absl::Status done = stream.Synchronize();
      return status.ok() ? done : status;
    });
  }

  void NoteProblem() { problems_.fetch_add(1, std::memory_order_relaxed); }

  DeviceFigures Read() const {
    const cuda::DeviceProperties& properties = device_->properties();
    DeviceFigures figures{.index = properties.ordinal,
                          .name = properties.name,
                          .healthy = device_->Health().ok(),
                          .memory = properties.memory,
                          .held = pool_.bytes_held(),
                          .limit = pool_.limit(),
                          .problems = problems_};
    // Asked earlier, a device would be set up for the question alone.
    if (figures.healthy && figures.problems > 0) {
      const absl::StatusOr<int64_t> free = device_->FreeMemory();
      if (free.ok()) figures.free = *free;
    }
    return figures;
  }

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Map(absl::string_view handle,
                                                    int64_t bytes) const {
    absl::StatusOr<std::byte*> memory = device_->OpenShared(handle, bytes);
    if (!memory.ok()) return memory.status();
    return std::make_unique<MappedMemory>(device_, *memory, bytes);
  }

  std::unique_ptr<PinnedMemory> Pin(absl::Span<std::byte> memory) const {
    if (!device_->PinHost(memory).ok()) return nullptr;
    return std::make_unique<PinnedPages>(device_, memory);
  }

 private:
  absl::Status WithStream(const AttentionJob& job,
                          absl::FunctionRef<absl::Status(Stream&)> run) {
    absl::StatusOr<std::unique_ptr<Stream>> stream = TakeStream();
    if (!stream.ok()) return stream.status();
    (*stream)->SetWatch({.look = job.look, .stop = job.stop, .grace = grace_});
    absl::Status status = run(**stream);
    (*stream)->SetWatch({});
    // A stream that has failed is not used again.
    if ((status.ok() || absl::IsCancelled(status)) && device_->Health().ok()) {
      const std::lock_guard lock(mutex_);
      streams_.push_back(*std::move(stream));
    }
    return status;
  }

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

  const std::shared_ptr<Device> device_;
  const std::chrono::nanoseconds grace_;
  MemoryPool pool_;
  std::atomic<int64_t> problems_ = 0;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(cuda::Devices devices, const CudaBackendOptions& options)
      : options_(options) {
    for (auto& device : devices) {
      runners_.push_back(
          std::make_unique<DeviceRunner>(std::move(device), options_));
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

  void Run(absl::Span<AttentionJob> jobs,
           const RunContext& context) const override {
    for (AttentionJob& job : jobs) job.status = RunOne(job, context);
  }

 private:
  absl::Status RunOne(AttentionJob& job, const RunContext& context) const {
    const absl::StatusOr<std::optional<int>> device =
        DeviceOf(absl::MakeConstSpan(&job, 1));
    if (!device.ok()) return device.status();
    DeviceRunner* const runner = *device ? RunnerOf(**device) : NextRunner();
    if (runner == nullptr && *device) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensors lie on CUDA device ", **device,
                       ", which this backend does not compute on"));
    }
    if (runner == nullptr) return Supports(*job.problem);
    // Those that take turns are asked where they are chosen.
    if (*device && !runner->device().Health().ok()) {
      return runner->device().Health();
    }
    cuda::PlanOptions options = options_.plan;
    const auto make_plan = [&] {
      return cuda::MakePlan(*job.problem, runner->device().properties(),
                            options,
                            cuda::InPlaceOf(*job.problem, job.outputs));
    };
    Plan plan = make_plan();
    if (plan.method == cuda::Method::kGemm &&
        !runner->device().LoadGemm().ok()) {
      options.gemm = false;
      plan = make_plan();
    }
    job.kernel = plan.kernel;
    if (job.stop.stop_requested()) {
      return absl::CancelledError("stopped before the first tile");
    }
    if (plan.method == cuda::Method::kNothing) {
      return *device ? runner->RunEmpty(job)
                     : cuda::WriteEmptyResults(job, nullptr);
    }
    std::vector<cuda::Slice> slices =
        cuda::SlicesOf(*job.problem, plan, options);
    absl::Status status =
        slices.size() > 1
            ? runner->RunSliced(job, context, plan, options, std::move(slices))
            : runner->Run(job, context, plan);
    if (status.ok()) runner->NoteProblem();
    return status;
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

  // Devices in turn, those that are lost left out; null where all are.
  DeviceRunner* NextRunner() const {
    const size_t first = next_.fetch_add(1, std::memory_order_relaxed);
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
