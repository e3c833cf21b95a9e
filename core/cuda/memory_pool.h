#ifndef ATTENTION_CORE_CUDA_MEMORY_POOL_H_
#define ATTENTION_CORE_CUDA_MEMORY_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/cuda/device.h"

namespace attention::cuda {

/// Memory of one device, kept between jobs and never more than a limit. A job
/// takes all that it needs as one block, so that jobs that wait for each other
/// cannot do so for ever. Safe for several threads at once.
class MemoryPool {
 public:
  /// A block of the pool; gives it back when it goes.
  class Block {
   public:
    Block() = default;
    Block(MemoryPool* pool, std::byte* data, int64_t bytes)
        : pool_(pool), data_(data), bytes_(bytes) {}
    Block(Block&& other) noexcept { *this = std::move(other); }
    Block& operator=(Block&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(data_, other.data_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Block() {
      if (pool_ != nullptr) pool_->GiveBack(data_, bytes_);
    }

    /// Aligned to 256 bytes.
    std::byte* data() const { return data_; }
    /// At least what was asked for.
    int64_t bytes() const { return bytes_; }

   private:
    MemoryPool* pool_ = nullptr;
    std::byte* data_ = nullptr;
    int64_t bytes_ = 0;
  };

  /// `limit` in bytes; nothing means kShare of what is free on the device when
  /// the first block is taken.
  MemoryPool(Device& device, std::optional<int64_t> limit)
      : device_(device), limit_(limit.value_or(kNoLimitYet)) {}
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// The share of a device's free memory that is taken by default.
  static constexpr double kShare = 0.8;

  /// Blocks are whole MiB, so that shapes that differ a little share them, or
  /// the limit where that is less.
  static constexpr int64_t InGranules(int64_t bytes) {
    constexpr int64_t kGranule = int64_t{1} << 20;
    return (bytes + kGranule - 1) / kGranule * kGranule;
  }

  /// `bytes` > 0, of unknown content. Waits while other jobs hold what is
  /// needed, and calls `look` now and then, until `stop` is requested:
  /// CANCELLED. RESOURCE_EXHAUSTED, naming what is needed and the limit, where
  /// it would never fit, or where the device itself has no more.
  absl::StatusOr<Block> Take(int64_t bytes, const std::stop_token& stop,
                             const std::function<void()>& look = {});
  /// The same without waiting, and not of more than whole MiB need; nothing
  /// where there is no such block at once.
  std::optional<Block> TryTake(int64_t bytes);
  /// Frees blocks that are kept, where they alone may stand in the way of a
  /// block of so many bytes, or waits, as Take() does, while others free them.
  /// That waits for the device: not to be called with a lock that a job needs
  /// to end. False where there is nothing to be freed, or once a stop was
  /// requested while others free it.
  bool MakeRoom(int64_t bytes, const std::stop_token& stop,
                const std::function<void()>& look);

  /// Who holds blocks that they can do without. `give_back` is called by Take()
  /// before it waits, from any thread and without a lock: it returns blocks of
  /// some of `bytes`, or says that it cannot bring so many together. To be set
  /// before the first block is taken.
  void SetGiveBack(std::function<bool(int64_t bytes)> give_back) {
    give_back_ = std::move(give_back);
  }
  /// Lets those who wait ask once more.
  void AskAgain();

  /// Makes limit() known. The device's error where it cannot be asked.
  absl::Status FindLimit();
  /// Bytes taken from the device: those of jobs and those that are kept.
  int64_t bytes_held() const { return held_; }
  /// The limit; nothing before it is known. Neither waits for a job that takes
  /// memory.
  std::optional<int64_t> limit() const {
    const int64_t limit = limit_;
    return limit == kNoLimitYet ? std::nullopt : std::optional(limit);
  }

 private:
  struct Free {
    std::byte* data;
    int64_t bytes;
  };

  static constexpr int64_t kNoLimitYet = -1;

  // Whether some of so many bytes were given back.
  bool AskBack(int64_t bytes, std::unique_lock<std::mutex>& lock);
  // With the lock, and where the limit allows it. RESOURCE_EXHAUSTED where the
  // device has no more, or where blocks that are kept stand in the way.
  absl::StatusOr<Block> TakeNow(int64_t rounded, int64_t most);
  // The smallest free block that does, or the end; none of more than `most`
  // bytes, nor of more than the limit leaves.
  std::vector<Free>::iterator FindFree(int64_t bytes, int64_t most);
  // Frees what is kept, without the lock meanwhile: the device ends what runs
  // first, and others give blocks back while it does. False where nothing is.
  bool ReleaseFree(std::unique_lock<std::mutex>& lock);
  // Waits for the other threads in ReleaseFree(), or for a block that comes
  // back meanwhile and that TakeNow() would take. One of another size is left
  // alone: whoever freed it could not be stopped. False once a stop was
  // requested.
  bool WaitForReleased(int64_t rounded, int64_t most,
                       std::unique_lock<std::mutex>& lock,
                       const std::stop_token& stop,
                       const std::function<void()>& look);
  void GiveBack(std::byte* data, int64_t bytes);

  Device& device_;
  mutable std::mutex mutex_;
  std::condition_variable_any returned_;
  std::function<bool(int64_t)> give_back_ = nullptr;
  uint64_t asked_again_ = 0;  // how often
  // Written under the lock, and read without it.
  std::atomic<int64_t> limit_;
  std::atomic<int64_t> held_ = 0;
  int64_t lent_ = 0;
  int releasing_ = 0;  // threads in ReleaseFree(), whose blocks are held still
  std::vector<Free> free_;
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_MEMORY_POOL_H_
