#include "core/cuda/memory_pool.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/cuda/wait_and_look.h"

namespace attention::cuda {
namespace {

int64_t Rounded(int64_t bytes, int64_t limit) {
  return std::min(MemoryPool::InGranules(bytes), limit);
}

}  // namespace

MemoryPool::~MemoryPool() {
  std::unique_lock lock(mutex_);
  ReleaseFree(lock);
}

absl::Status MemoryPool::FindLimit() {
  if (limit_ != kNoLimitYet) return absl::OkStatus();
  const std::lock_guard lock(mutex_);
  if (limit_ != kNoLimitYet) return absl::OkStatus();
  const absl::StatusOr<int64_t> free = device_.FreeMemory();
  if (!free.ok()) return free.status();
  limit_ = static_cast<int64_t>(kShare * static_cast<double>(*free));
  return absl::OkStatus();
}

std::vector<MemoryPool::Free>::iterator MemoryPool::FindFree(int64_t bytes,
                                                             int64_t most) {
  most = std::min(most, limit_ - lent_);
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->bytes < bytes || it->bytes > most) continue;
    if (best == free_.end() || it->bytes < best->bytes) best = it;
  }
  return best;
}

bool MemoryPool::ReleaseFree(std::unique_lock<std::mutex>& lock) {
  if (free_.empty()) return false;
  const std::vector<Free> released = std::exchange(free_, {});
  ++releasing_;
  lock.unlock();
  int64_t bytes = 0;
  for (const Free& block : released) {
    device_.Free(block.data);
    bytes += block.bytes;
  }
  lock.lock();
  held_ -= bytes;
  --releasing_;
  returned_.notify_all();
  return true;
}

bool MemoryPool::WaitForReleased(int64_t rounded, int64_t most,
                                 std::unique_lock<std::mutex>& lock,
                                 const std::stop_token& stop,
                                 const std::function<void()>& look) {
  return WaitAndLook(returned_, lock, stop, look, [&] {
    return releasing_ == 0 || FindFree(rounded, most) != free_.end();
  });
}

absl::StatusOr<MemoryPool::Block> MemoryPool::Take(
    int64_t bytes, const std::stop_token& stop,
    const std::function<void()>& look) {
  if (absl::Status status = FindLimit(); !status.ok()) return status;
  std::unique_lock lock(mutex_);
  const int64_t limit = limit_;
  if (bytes > limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the request needs ", bytes,
                     " bytes of device memory, more than the limit of ", limit,
                     " (--cuda-memory-limit)"));
  }
  const int64_t rounded = Rounded(bytes, limit);
  const auto is_room = [&] { return lent_ + rounded <= limit; };
  for (;;) {
    const uint64_t seen = asked_again_;
    if (!is_room()) {
      if (AskBack(lent_ + rounded - limit, lock)) continue;
      const auto changed = [&] { return is_room() || asked_again_ != seen; };
      if (WaitAndLook(returned_, lock, stop, look, changed)) continue;
      return absl::CancelledError("stopped before it had memory");
    }
    absl::StatusOr<Block> block = TakeNow(rounded, 2 * rounded);
    if (!absl::IsResourceExhausted(block.status())) return block;
    if (ReleaseFree(lock)) continue;
    if (releasing_ > 0) {
      if (WaitForReleased(rounded, 2 * rounded, lock, stop, look)) continue;
      return absl::CancelledError("stopped before it had memory");
    }
    // Others have taken the device's memory.
    if (AskBack(rounded, lock)) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("the request needs ", bytes,
                     " bytes of device memory, and within the "
                     "limit of ",
                     limit, " (--cuda-memory-limit) the device has no more: ",
                     block.status().message()));
  }
}

bool MemoryPool::AskBack(int64_t bytes, std::unique_lock<std::mutex>& lock) {
  if (!give_back_) return false;
  lock.unlock();
  const bool given_back = give_back_(bytes);
  lock.lock();
  return given_back;
}

std::optional<MemoryPool::Block> MemoryPool::TryTake(int64_t bytes) {
  if (!FindLimit().ok()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const int64_t rounded = Rounded(bytes, limit_);
  if (bytes > limit_ || lent_ + rounded > limit_) return std::nullopt;
  absl::StatusOr<Block> block = TakeNow(rounded, rounded);
  if (!block.ok()) return std::nullopt;
  return *std::move(block);
}

bool MemoryPool::MakeRoom(int64_t bytes, const std::stop_token& stop,
                          const std::function<void()>& look) {
  std::unique_lock lock(mutex_);
  const int64_t rounded = Rounded(bytes, limit_);
  if (lent_ + rounded > limit_) return false;
  if (ReleaseFree(lock)) return true;
  return releasing_ > 0 && WaitForReleased(rounded, rounded, lock, stop, look);
}

absl::StatusOr<MemoryPool::Block> MemoryPool::TakeNow(int64_t rounded,
                                                      int64_t most) {
  if (const auto kept = FindFree(rounded, most); kept != free_.end()) {
    lent_ += kept->bytes;
    Block block(this, kept->data, kept->bytes);
    free_.erase(kept);
    return block;
  }
  if (held_ + rounded > limit_) {
    return absl::ResourceExhaustedError("the limit is reached");
  }
  const absl::StatusOr<std::byte*> data = device_.Allocate(rounded);
  if (!data.ok()) return data.status();
  held_ += rounded;
  lent_ += rounded;
  return Block(this, *data, rounded);
}

void MemoryPool::AskAgain() {
  {
    const std::lock_guard lock(mutex_);
    ++asked_again_;
  }
  returned_.notify_all();
}

void MemoryPool::GiveBack(std::byte* data, int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    lent_ -= bytes;
    free_.push_back({data, bytes});
  }
  returned_.notify_all();
}

}  // namespace attention::cuda
