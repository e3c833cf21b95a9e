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

  bool Release() override { return device_->UnpinHost(memory_).ok(); }

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
      pool_(device_, memory_limit),
      pages_(pool_) {}

absl::StatusOr<MemoryPool::Block> DeviceRunner::TakeMemory(
    int64_t bytes, const AttentionJob& job, MemoryShare share) {
  if (share == MemoryShare::kBesidePages &&
      bytes > pool_.limit().value_or(0) - pages_.limit()) {
    return absl::ResourceExhaustedError("more than what pages leave");
  }
  return pool_.Take(bytes, job.stop, job.look);
}

absl::Status DeviceRunner::BringPages(
    absl::Span<const DevicePages::Hold* const> holds, const AttentionJob& job) {
  return pages_.Bring(
      holds, job.stop, job.look,
      [&](absl::Span<const PageRows> rows) { return BringRows(rows, job); });
}

absl::Status DeviceRunner::BringRows(absl::Span<const PageRows> rows,
                                     const AttentionJob& job) {
  const PageRowsUpload upload(rows);
  std::optional<MemoryPool::Block> memory;
  if (upload.bytes() > 0) {
    memory = pool_.TryTake(upload.bytes());
    if (!memory && pool_.MakeRoom(upload.bytes(), job.stop, job.look)) {
      memory = pool_.TryTake(upload.bytes());
    }
    if (!memory) {
      return absl::ResourceExhaustedError("no memory for rows of pages");
    }
  }
  return WithStream(job, [&](Stream& stream) {
    const absl::Status status = upload.Begin(device_->kernels(), stream,
                                             memory ? memory->data() : nullptr);
    // The memory is another's, and the pages are others', once this returns.
    const absl::Status done = stream.Synchronize();
    return status.ok() ? done : status;
  });
}

absl::Status DeviceRunner::Run(AttentionJob& job, const RunContext& context,
                               const Plan& plan, MemoryShare share) {
  absl::StatusOr<MemoryPool::Block> memory = TakeMemory(plan.bytes, job, share);
  if (!memory.ok()) return memory.status();
  return WithStream(job, [&](Stream& stream) {
    return CudaJob(job, context, plan, *device_, stream, memory->data()).Run();
  });
}

absl::Status DeviceRunner::RunSliced(
    AttentionJob& job, const RunContext& context, const Plan& plan,
    const PlanOptions& options, std::vector<Slice> slices, MemoryShare share) {
  SlicedJob sliced(job, context, *device_, options, std::move(slices));
  absl::StatusOr<MemoryPool::Block> memory =
      TakeMemory(sliced.bytes(), job, share);
  // Two slices at once may need more than the whole.
  if (absl::IsResourceExhausted(memory.status()) &&
      plan.bytes < sliced.bytes()) {
    return Run(job, context, plan, share);
  }
  if (!memory.ok()) return memory.status();
  return WithStream(job, [&](Stream& first) {
    return WithStream(job, [&](Stream& second) {
      return sliced.Run({&first, &second}, memory->data());
    });
  });
}

absl::Status DeviceRunner::RunEntries(EntriesJob& entries,
                                      const AttentionJob& first,
                                      MemoryShare share) {
  absl::StatusOr<MemoryPool::Block> memory =
      TakeMemory(entries.bytes(), first, share);
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
  const DevicePages::Figures pages = pages_.Read();
  figures.pages = pages.pages;
  figures.page_bytes = pages.bytes;
  figures.page_bytes_brought = pages.brought_bytes;
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
  if (!stream.ok()) {
    GiveBackStream(nullptr);
    return stream.status();
  }
  (*stream)->SetWatch({.look = job.look,
                       .stop = job.stop,
                       .grace = grace_,
                       .marks = &marks_reached_});
  absl::Status status = run(**stream);
  (*stream)->SetWatch({});
  // A stream that has failed is not used again.
  const bool goes_on =
      (status.ok() || absl::IsCancelled(status)) && device_->Health().ok();
  GiveBackStream(goes_on ? *std::move(stream) : nullptr);
  return status;
}

void DeviceRunner::GiveBackStream(std::unique_ptr<Stream> stream) {
  std::vector<std::unique_ptr<Stream>> gone;  // after the lock
  const std::lock_guard lock(mutex_);
  if (stream != nullptr) streams_.push_back(std::move(stream));
  // Not while others compute: to free pinned memory waits for the device.
  if (--streams_in_use_ > 0) return;
  while (streams_.size() > kKeptStreams) {
    gone.push_back(std::move(streams_.back()));
    streams_.pop_back();
  }
}

absl::StatusOr<std::unique_ptr<Stream>> DeviceRunner::TakeStream() {
  {
    const std::lock_guard lock(mutex_);
    ++streams_in_use_;
    if (!streams_.empty()) {
      std::unique_ptr<Stream> stream = std::move(streams_.back());
      streams_.pop_back();
      return stream;
    }
  }
  return device_->NewStream();
}

}  // namespace attention::cuda
