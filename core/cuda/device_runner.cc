#include "core/cuda/device_runner.h"

#include <utility>

#include "core/cuda/cuda_job.h"
#include "core/cuda/job_transfer.h"

namespace attention::cuda {
namespace {

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

}  // namespace

DeviceRunner::DeviceRunner(std::unique_ptr<Device> device,
                           std::optional<int64_t> memory_limit,
                           std::chrono::nanoseconds grace)
    : device_(std::move(device)),
      grace_(grace),
      pool_(*device_, memory_limit) {}

absl::Status DeviceRunner::Run(AttentionJob& job, const RunContext& context,
                               const Plan& plan) {
  absl::StatusOr<MemoryPool::Block> memory = pool_.Take(plan.bytes, job.stop);
  if (!memory.ok()) return memory.status();
  return WithStream(job, [&](Stream& stream) {
    return CudaJob(job, context, plan, *device_, stream, memory->data()).Run();
  });
}

absl::Status DeviceRunner::RunSliced(AttentionJob& job,
                                     const RunContext& context,
                                     const Plan& plan,
                                     const PlanOptions& options,
                                     std::vector<Slice> slices) {
  SlicedJob sliced(job, context, *device_, options, std::move(slices));
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

absl::Status DeviceRunner::RunEntries(EntriesJob& entries,
                                      const AttentionJob& first) {
  absl::StatusOr<MemoryPool::Block> memory =
      pool_.Take(entries.bytes(), first.stop);
  if (!memory.ok()) return memory.status();
  return WithStream(first, [&](Stream& stream) {
    return entries.Run(stream, memory->data());
  });
}

absl::Status DeviceRunner::RunEmpty(AttentionJob& job) {
  return WithStream(job, [&](Stream& stream) {
    absl::Status status = WriteEmptyResults(job, &stream);
    const absl::Status done = stream.Synchronize();
    return status.ok() ? done : status;
  });
}

DeviceFigures DeviceRunner::Read() const {
  const DeviceProperties& properties = device_->properties();
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

absl::StatusOr<std::unique_ptr<DeviceMemory>> DeviceRunner::Map(
    absl::string_view handle, int64_t bytes) const {
  absl::StatusOr<std::byte*> memory = device_->OpenShared(handle, bytes);
  if (!memory.ok()) return memory.status();
  return std::make_unique<MappedMemory>(device_, *memory, bytes);
}

std::unique_ptr<PinnedMemory> DeviceRunner::Pin(
    absl::Span<std::byte> memory) const {
  if (!device_->PinHost(memory).ok()) return nullptr;
  return std::make_unique<PinnedPages>(device_, memory);
}

absl::Status DeviceRunner::WithStream(
    const AttentionJob& job, absl::FunctionRef<absl::Status(Stream&)> run) {
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

absl::StatusOr<std::unique_ptr<Stream>> DeviceRunner::TakeStream() {
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

}  // namespace attention::cuda
