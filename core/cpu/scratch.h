#ifndef ATTENTION_CORE_CPU_SCRATCH_H_
#define ATTENTION_CORE_CPU_SCRATCH_H_

#include <cstddef>
#include <cstdint>

namespace attention::cpu {

/// Hands out pieces of the calling thread's scratch memory, which is kept from
/// one use to the next. One at a time per thread. Two passes share one piece of
/// code: with `memory` null the pieces are only counted.
class Scratch {
 public:
  /// Counts.
  Scratch() = default;
  explicit Scratch(std::byte* memory) : memory_(memory) {}

  /// `count` elements at an address that is a multiple of 64; null while
  /// counting.
  template <typename T>
  T* Take(int64_t count) {
    const size_t at = used_;
    used_ += (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + at);
  }

  /// Bytes taken so far.
  size_t used() const { return used_; }

 private:
  std::byte* memory_ = nullptr;
  size_t used_ = 0;
};

/// Memory of the calling thread, lent while this lives and kept for the next
/// use unless it is more than a thread may keep (Backend::kThreadBytes). Leases
/// of a thread nest: what a tile gives way to (AttentionJob::before_tile) has
/// memory of its own.
class ThreadMemory {
 public:
  explicit ThreadMemory(size_t bytes);
  ~ThreadMemory();
  ThreadMemory(const ThreadMemory&) = delete;
  ThreadMemory& operator=(const ThreadMemory&) = delete;

  /// At least as many bytes as were asked for, at a multiple of 64; null where
  /// there are none to be had.
  std::byte* get() const { return bytes_; }

 private:
  std::byte* bytes_;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCRATCH_H_
