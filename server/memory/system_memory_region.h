#ifndef ATTENTION_SERVER_MEMORY_SYSTEM_MEMORY_REGION_H_
#define ATTENTION_SERVER_MEMORY_SYSTEM_MEMORY_REGION_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/device_memory.h"
#include "core/engine.h"
#include "server/base/file_descriptor.h"
#include "server/memory/fault_guard.h"
#include "server/memory/shared_memory_region.h"

namespace attention::server {

/// A part of a POSIX shared-memory object, mapped for reading and writing.
class SystemMemoryRegion final : public SharedMemoryRegion {
 public:
  /// Opens and maps. INVALID_ARGUMENT where the key is not one that
  /// CheckSharedMemoryKey takes, byte_size is 0 or the object ends before
  /// offset + byte_size; NOT_FOUND, PERMISSION_DENIED and so on where the
  /// system refuses to open the object; RESOURCE_EXHAUSTED where it cannot be
  /// mapped.
  static absl::StatusOr<std::shared_ptr<SystemMemoryRegion>> Map(
      SharedMemoryDescription description);
  ~SystemMemoryRegion() override;

  /// Lets the devices of `engine`, where it has any, copy from and to the
  /// region's memory by themselves. Takes a moment for each MiB. Such a region
  /// is looked at in CheckIntact(): an object that was truncated and is as
  /// large as before by then is not noticed. Once, while others may use the
  /// region.
  void Pin(const Engine& engine);

  /// Whether memory was missing when it was touched: its owner truncated the
  /// object, or the system had no page left for it. From then on the region
  /// reads as zeros and what is written stays in this process.
  bool lost() const { return guard_->faulted(); }

  absl::Status CheckIntact() const override;
  /// Where the object was locked (flock, LOCK_EX) when it was mapped: whether
  /// the lock is gone, as it is at the latest when the process ends that held
  /// it.
  bool Abandoned() const override;
  absl::Status CopyToHost(const std::byte* from,
                          absl::Span<std::byte> to) const override;

 private:
  explicit SystemMemoryRegion(SharedMemoryDescription description)
      : SharedMemoryRegion(std::move(description)) {}
  absl::Status MapObject();

  // The object; closed once it is mapped, unless its owner holds a lock on it.
  FileDescriptor object_file_;

  void* mapping_ = nullptr;  // begins at the page that offset lies in
  size_t mapping_size_ = 0;
  std::optional<FaultGuard> guard_;
  std::unique_ptr<PinnedMemory> pinned_;  // null where it is not
  std::atomic<bool> is_watched_{false};   // while a device may copy by itself
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MEMORY_SYSTEM_MEMORY_REGION_H_
