#ifndef ATTENTION_SERVER_MEMORY_SHARED_MEMORY_REGION_H_
#define ATTENTION_SERVER_MEMORY_SHARED_MEMORY_REGION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/memory/fault_guard.h"

namespace attention::server {

/// What a caller registers: `byte_size` bytes, from `offset` on, of the POSIX
/// shared-memory object `key`, under a name of its choice.
struct SharedMemoryDescription {
  std::string name;
  std::string key;         // as for shm_open: "/tensors"
  uint64_t offset = 0;     // bytes, any multiple of 1
  uint64_t byte_size = 0;  // at least 1
};

/// A part of another process's shared memory, mapped for reading and writing
/// until the last one who holds the region lets go. Safe for several threads at
/// once, as far as the bytes themselves are: their owner may change them at any
/// moment, so whatever is checked must be copied first.
class SharedMemoryRegion {
 public:
  /// Opens and maps. INVALID_ARGUMENT where the key is not one that
  /// CheckSharedMemoryKey takes, byte_size is 0 or the object ends before
  /// offset + byte_size; NOT_FOUND, PERMISSION_DENIED and so on where the
  /// system refuses to open the object; RESOURCE_EXHAUSTED where it cannot be
  /// mapped.
  static absl::StatusOr<std::shared_ptr<SharedMemoryRegion>> Map(
      SharedMemoryDescription description);

  ~SharedMemoryRegion();
  SharedMemoryRegion(const SharedMemoryRegion&) = delete;
  SharedMemoryRegion& operator=(const SharedMemoryRegion&) = delete;

  const SharedMemoryDescription& description() const { return description_; }

  /// `byte_size` bytes from `offset` on, both counted within the region; they
  /// are valid as long as the region is held. No alignment is promised.
  /// INVALID_ARGUMENT where they are not all within the region,
  /// FAILED_PRECONDITION as CheckIntact().
  absl::StatusOr<absl::Span<std::byte>> Bytes(uint64_t offset,
                                              uint64_t byte_size) const;

  /// Whether memory was missing when it was touched: its owner truncated the
  /// object, or the system had no page left for it. From then on the region
  /// reads as zeros and what is written stays in this process.
  bool lost() const { return guard_->faulted(); }

  /// FAILED_PRECONDITION, naming the region, where it is lost. Ask when all
  /// reading and writing for a request is done, before it is answered.
  absl::Status CheckIntact() const;

 private:
  explicit SharedMemoryRegion(SharedMemoryDescription description)
      : description_(std::move(description)) {}
  absl::Status MapObject(int descriptor);

  const SharedMemoryDescription description_;
  void* mapping_ = nullptr;  // begins at the page that offset lies in
  size_t mapping_size_ = 0;
  std::byte* bytes_ = nullptr;
  std::optional<FaultGuard> guard_;
};

/// A region's name: 1 to 256 letters, digits and . _ - : + = @ /.
/// INVALID_ARGUMENT otherwise.
absl::Status CheckSharedMemoryName(const std::string& name);

/// A key: one '/' or none, then 1 to 255 letters, digits and . _ - : + = @,
/// without ".."; not one that begins with triton_python_backend_shm_region_,
/// which another server keeps its own memory under. INVALID_ARGUMENT otherwise.
absl::Status CheckSharedMemoryKey(const std::string& key);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MEMORY_SHARED_MEMORY_REGION_H_
