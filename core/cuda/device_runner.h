#ifndef ATTENTION_CORE_CUDA_DEVICE_RUNNER_H_
#define ATTENTION_CORE_CUDA_DEVICE_RUNNER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/backend.h"
#include "core/cuda/device.h"
#include "core/cuda/device_pages.h"
#include "core/cuda/entries_job.h"
#include "core/cuda/memory_pool.h"
#include "core/cuda/plan.h"
#include "core/cuda/sliced_job.h"
#include "core/device_memory.h"

namespace attention::cuda {

/// How much of a device's memory a job may take.
enum class MemoryShare : uint8_t {
  /// Up to the limit: the job waits for others, and pages that nobody holds go.
  kAll,
  /// Of a job that holds pages: what pages leave at any time, so that it never
  /// waits for others who hold some.
  kBesidePages,
};

/// A device with what is kept on it between jobs: memory, and kKeptStreams.
/// Safe for several threads at once.
class DeviceRunner {
 public:
  /// Streams that are kept where no job uses one; each has pinned memory
  /// (Stream::kBuffers).
  static constexpr size_t kKeptStreams = 16;

  /// `memory_limit` as MemoryPool has it; `grace` as Watch has it.
  DeviceRunner(std::unique_ptr<Device> device,
               std::optional<int64_t> memory_limit,
               std::chrono::nanoseconds grace);

  Device& device() { return *device_; }
  const Device& device() const { return *device_; }

  /// Copies of pages that stay.
  DevicePages& pages() { return pages_; }
  /// Brings what the pages of `holds` lack; they are of `job` and of others
  /// that are stopped with it. OK, CANCELLED, RESOURCE_EXHAUSTED without memory
  /// for what is on its way, or the device's error.
  absl::Status BringPages(absl::Span<const DevicePages::Hold* const> holds,
                          const AttentionJob& job);

  /// These compute: OK, CANCELLED, RESOURCE_EXHAUSTED for more than the share,
  /// or the device's error. `plan` is the job's.
  absl::Status Run(AttentionJob& job, const RunContext& context,
                   const Plan& plan, MemoryShare share);
  absl::Status RunSliced(AttentionJob& job, const RunContext& context,
                         const Plan& plan, const PlanOptions& options,
                         std::vector<Slice> slices, MemoryShare share);
  /// All jobs in few launches; `first` is one of them.
  absl::Status RunEntries(EntriesJob& entries, const AttentionJob& first,
                          MemoryShare share);
  /// Of a problem for which nothing is computed.
  absl::Status RunEmpty(AttentionJob& job);

  /// Counts a problem that was computed.
  void NoteProblem() { problems_.fetch_add(1, std::memory_order_relaxed); }
  /// What the device is doing.
  DeviceFigures Read() const;

  /// As Backend::MapDeviceMemory() and PinHostMemory() on this device.
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Map(absl::string_view handle,
                                                    int64_t bytes) const;
  std::unique_ptr<PinnedMemory> Pin(absl::Span<std::byte> memory) const;

 private:
  absl::Status WithStream(const AttentionJob& job,
                          absl::FunctionRef<absl::Status(Stream&)> run);
  absl::StatusOr<std::unique_ptr<Stream>> TakeStream();
  // Null where it is not to be used again.
  void GiveBackStream(std::unique_ptr<Stream> stream);
  absl::StatusOr<MemoryPool::Block> TakeMemory(int64_t bytes,
                                               const AttentionJob& job,
                                               MemoryShare share);
  absl::Status BringRows(absl::Span<const PageRows> rows,
                         const AttentionJob& job);

  const std::shared_ptr<Device> device_;
  const std::chrono::nanoseconds grace_;
  MemoryPool pool_;
  DevicePages pages_;
  std::atomic<int64_t> problems_ = 0;
  std::atomic<int64_t> marks_reached_ = 0;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Stream>> streams_;  // that no job uses
  int64_t streams_in_use_ = 0;
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_DEVICE_RUNNER_H_
