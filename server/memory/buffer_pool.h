#ifndef ATTENTION_SERVER_MEMORY_BUFFER_POOL_H_
#define ATTENTION_SERVER_MEMORY_BUFFER_POOL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace attention::server {

/// Keeps the memory of large buffers for the next ones.
///
/// Why: glibc gives large blocks back to the kernel as soon as they are freed,
/// and the next message faults every page of them in again: 1,500 faults for a
/// call of 12 MiB, which takes longer than any copy of those bytes.
///
/// Blocks are whole pages of size classes an eighth of a power of two apart. A
/// miss gives back at least as much as it takes, if so much is kept, the class
/// that was asked for longest ago first: memory in use and kept together never
/// exceeds the most that was in use at one time. May be used from several
/// threads at once.
///
/// Under the address sanitizer, bytes that are kept or beyond a buffer's size
/// are poisoned.
class BufferPool {
 public:
  /// Smaller buffers are the C++ library's, which keeps them well.
  static constexpr int64_t kLeastPooled = 64 << 10;
  /// What every buffer begins at a multiple of.
  static constexpr size_t kAlignment = 64;

  /// Keeps at most `most_kept` bytes that nobody uses.
  explicit BufferPool(int64_t most_kept) : most_kept_(most_kept) {}
  /// Every buffer has been returned.
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// The one that AlignedBuffer uses. It is never destroyed: gRPC may return
  /// the buffer of a last reply while the process ends.
  static BufferPool& OfProcess();

  /// Uninitialised memory for `size` >= 0 bytes; nullptr where there is none.
  std::byte* Take(int64_t size);
  /// Any buffer that Take() gave; nullptr is none.
  void Return(std::byte* buffer);

  /// Bytes kept that nobody uses.
  int64_t kept() const;

 private:
  struct Block;  // what lies before a buffer
  struct SizeClass {
    Block* kept = nullptr;  // linked, the latest first
    int64_t last_take = 0;  // by takes_
  };

  // 64 KiB to 8 GiB; what is larger is never kept.
  static constexpr int kClasses = 17 * 8;
  static int ClassOf(int64_t bytes);  // rounded; kClasses or more: none

  static Block* Map(int64_t bytes);  // rounded; nullptr where there is none
  static void Unmap(Block* block);
  static void UnmapAll(Block* blocks);  // linked

  // Unlinks kept blocks of at least `bytes` together, or all. mutex_ is held.
  Block* Unlink(int64_t bytes);

  const int64_t most_kept_;
  mutable std::mutex mutex_;
  std::array<SizeClass, kClasses> classes_;
  int64_t kept_ = 0;
  int64_t takes_ = 0;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MEMORY_BUFFER_POOL_H_
