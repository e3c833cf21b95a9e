#ifndef ATTENTION_CORE_CUDA_MEMORY_POOL_H_
#define ATTENTION_CORE_CUDA_MEMORY_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
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
///
/// Where the device is asked for memory, or to free some, it may end what runs
/// first, and a kernel that hangs holds the call up for ever. Such calls have
/// threads of their own, and who waits for them can be stopped.
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
  MemoryPool(std::shared_ptr<Device> device, std::optional<int64_t> limit)
      : state_(std::make_shared<State>(std::move(device),
                                       limit.value_or(kNoLimitYet))) {}
  /// Waits for calls of the device, unless it is lost.
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
  /// A block that is kept, and not of more than whole MiB need, without asking
  /// the device; nothing where there is none.
  std::optional<Block> TryTake(int64_t bytes);
  /// Sees to a block for TryTake() where blocks that others hold do not stand
  /// in the way: asks the device for it, once what is kept was freed where that
  /// is needed. Waits for the device as Take() does: not to be called with a
  /// lock that a job needs to end. False where there is no such block, or once
  /// a stop was requested.
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
  int64_t bytes_held() const { return state_->held; }
  /// The limit; nothing before it is known. Neither waits for a job that takes
  /// memory.
  std::optional<int64_t> limit() const {
    const int64_t limit = state_->limit;
    return limit == kNoLimitYet ? std::nullopt : std::optional(limit);
  }

 private:
  struct Free {
    std::byte* data;
    int64_t bytes;
  };

  static constexpr int64_t kNoLimitYet = -1;

  // What threads that call the device have a share of, as they may outlive the
  // pool of a device that is lost.
  struct State {
    State(std::shared_ptr<Device> of, int64_t limit_or_none)
        : device(std::move(of)), limit(limit_or_none) {}

    const std::shared_ptr<Device> device;
    std::mutex mutex;
    std::condition_variable_any returned;
    // Written under the lock, and read without it.
    std::atomic<int64_t> limit;
    std::atomic<int64_t> held = 0;
    int64_t lent = 0;
    int calls = 0;      // of the device that have not ended
    int releasing = 0;  // those that free blocks, which are held still
    std::vector<Free> free;
  };
  // A call of the device for a block.
  struct Growth;

  // Whether some of so many bytes were given back.
  bool AskBack(int64_t bytes, std::unique_lock<std::mutex>& lock);
  // Calls the device apart: `call` without the lock, `after` with it.
  template <typename Call, typename After>
  void Apart(const Call& call, const After& after);
  // Of what others have not lent, with all that the device must do first.
  // CANCELLED; RESOURCE_EXHAUSTED where others hold too much, or where the
  // device has no more.
  absl::StatusOr<Block> TakeUnlent(int64_t rounded, int64_t most,
                                   std::unique_lock<std::mutex>& lock,
                                   const std::stop_token& stop,
                                   const std::function<void()>& look);
  // Of the device, within the limit. One that comes too late is kept.
  absl::StatusOr<Block> Grow(int64_t rounded,
                             std::unique_lock<std::mutex>& lock,
                             const std::stop_token& stop,
                             const std::function<void()>& look);
  // The smallest that is kept and does, lent; none of more than `most` bytes,
  // nor of more than the limit leaves.
  std::optional<Block> TakeKept(int64_t bytes, int64_t most);
  std::vector<Free>::iterator FindFree(int64_t bytes, int64_t most);
  // Begins to free what is kept.
  void BeginRelease();
  // Waits until it is freed, or for a block that comes back meanwhile and does.
  // One of another size is left alone: whoever freed it could not be stopped.
  // False once a stop was requested.
  bool WaitForReleased(int64_t rounded, int64_t most,
                       std::unique_lock<std::mutex>& lock,
                       const std::stop_token& stop,
                       const std::function<void()>& look);
  void GiveBack(std::byte* data, int64_t bytes);

  const std::shared_ptr<State> state_;
  std::function<bool(int64_t)> give_back_ = nullptr;
  uint64_t asked_again_ = 0;  // how often, under the lock
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_MEMORY_POOL_H_
