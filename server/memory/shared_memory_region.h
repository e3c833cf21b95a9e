#ifndef ATTENTION_SERVER_MEMORY_SHARED_MEMORY_REGION_H_
#define ATTENTION_SERVER_MEMORY_SHARED_MEMORY_REGION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/tensor_view.h"

namespace attention::server {

/// What a caller registers, under a name of its choice: `byte_size` bytes of a
/// POSIX shared-memory object or of a CUDA device's memory.
struct SharedMemoryDescription {
  std::string name = {};
  // In host memory: from `offset` on, of the object `key`.
  std::string key = {};    // as for shm_open: "/tensors"
  uint64_t offset = 0;     // bytes, any multiple of 1
  uint64_t byte_size = 0;  // at least 1
  MemorySpace space = MemorySpace::kHost;
  int device = 0;  // of kCudaDevice
};

/// Which memory bytes are, however often an object is mapped.
struct MemoryRange {
  /// The object's device and inode; zeros for device memory, whose addresses
  /// are the same in every mapping.
  std::pair<uint64_t, uint64_t> object;
  uint64_t begin = 0;  // in the object, or the address
  uint64_t end = 0;
};

/// Memory that another process shares with this one, mapped until the last one
/// who holds the region lets go. Safe for several threads at once, as far as
/// the bytes themselves are: their owner may change them at any moment, so
/// whatever is checked must be copied first.
class SharedMemoryRegion {
 public:
  virtual ~SharedMemoryRegion() = default;
  SharedMemoryRegion(const SharedMemoryRegion&) = delete;
  SharedMemoryRegion& operator=(const SharedMemoryRegion&) = delete;

  const SharedMemoryDescription& description() const { return description_; }

  /// `byte_size` bytes from `offset` on, both counted within the region; they
  /// are valid as long as the region is held, and the host must not touch them
  /// where the space is a device's. No alignment is promised. INVALID_ARGUMENT
  /// where they are not all within the region, FAILED_PRECONDITION as
  /// CheckIntact().
  absl::StatusOr<absl::Span<std::byte>> Bytes(uint64_t offset,
                                              uint64_t byte_size) const;

  /// Of bytes that Bytes() gave.
  MemoryRange RangeOf(absl::Span<const std::byte> bytes) const;

  /// FAILED_PRECONDITION, naming the region, where its memory went away. Ask
  /// when all reading and writing for a request is done, before it is answered.
  virtual absl::Status CheckIntact() const = 0;

  /// Whether its owner is known to have ended, so that nobody will unregister
  /// it.
  virtual bool Abandoned() const { return false; }

  /// Copies bytes of the region to host memory, as many as `to` has.
  virtual absl::Status CopyToHost(const std::byte* from,
                                  absl::Span<std::byte> to) const = 0;

 protected:
  explicit SharedMemoryRegion(SharedMemoryDescription description)
      : description_(std::move(description)) {}

  void set_begin(std::byte* begin) { begin_ = begin; }
  /// Of host memory: the object's device and inode.
  void set_object(uint64_t device, uint64_t inode) {
    object_ = {device, inode};
  }

 private:
  const SharedMemoryDescription description_;
  std::byte* begin_ = nullptr;
  std::pair<uint64_t, uint64_t> object_ = {0, 0};
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MEMORY_SHARED_MEMORY_REGION_H_
