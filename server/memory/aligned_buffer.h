#ifndef ATTENTION_SERVER_MEMORY_ALIGNED_BUFFER_H_
#define ATTENTION_SERVER_MEMORY_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace attention::server {

/// Uninitialised bytes that begin at a multiple of 64: what a tensor of a
/// request is gathered into, and what a result is computed into.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;

  /// `size` >= 0. RESOURCE_EXHAUSTED where that much memory cannot be had.
  static absl::StatusOr<AlignedBuffer> Create(int64_t size);

  std::byte* data() { return bytes_.get(); }
  int64_t size() const { return size_; }
  absl::Span<const std::byte> bytes() const {
    return {bytes_.get(), static_cast<size_t>(size_)};
  }

  /// Gives the memory away; whoever takes it, a reply's slice for one, ends it
  /// with Free() on any thread.
  std::byte* Release() {
    size_ = 0;
    return bytes_.release();
  }
  static void Free(void* bytes);

 private:
  struct Delete {
    void operator()(std::byte* bytes) const { Free(bytes); }
  };

  std::unique_ptr<std::byte[], Delete> bytes_;
  int64_t size_ = 0;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MEMORY_ALIGNED_BUFFER_H_
