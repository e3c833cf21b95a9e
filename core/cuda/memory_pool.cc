#include "core/cuda/memory_pool.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace attention::cuda {
namespace {

// Blocks are whole numbers of these, so that shapes that differ a little share
// them.
constexpr int64_t kGranule = int64_t{1} << 20;

}  // namespace

MemoryPool::~MemoryPool() { ReleaseFree(); }

absl::Status MemoryPool::SetLimit() {
  if (limit_ != kNoLimitYet) return absl::OkStatus();
  const absl::StatusOr<int64_t> free = device_.FreeMemory();
  if (!free.ok()) return free.status();
  limit_ = static_cast<int64_t>(kShare * static_cast<double>(*free));
  return absl::OkStatus();
}

std::optional<MemoryPool::Free> MemoryPool::TakeFree(int64_t bytes) {
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->bytes < bytes || it->bytes / 2 > bytes) continue;
    if (best == free_.end() || it->bytes < best->bytes) best = it;
  }
  if (best == free_.end()) return std::nullopt;
  const Free found = *best;
  free_.erase(best);
  return found;
}

void MemoryPool::ReleaseFree() {
  for (const Free& block : free_) {
    device_.Free(block.data);
    held_ -= block.bytes;
  }
  free_.clear();
}

absl::StatusOr<MemoryPool::Block> MemoryPool::Take(
    int64_t bytes, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  if (absl::Status status = SetLimit(); !status.ok()) return status;
  const int64_t limit = limit_;
  if (bytes > limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the request needs ", bytes,
                     " bytes of device memory, more than the limit of ", limit,
                     " (--cuda-memory-limit)"));
  }
  const int64_t rounded =
      std::min((bytes + kGranule - 1) / kGranule * kGranule, limit);
  const bool room =
      returned_.wait(lock, stop, [&] { return lent_ + rounded <= limit; });
  if (!room) return absl::CancelledError("stopped before it had memory");
  if (const std::optional<Free> kept = TakeFree(rounded);
      kept && lent_ + kept->bytes <= limit) {
    lent_ += kept->bytes;
    return Block(this, kept->data, kept->bytes);
  } else if (kept) {
    free_.push_back(*kept);
  }
  if (held_ + rounded > limit) ReleaseFree();
  absl::StatusOr<std::byte*> data = device_.Allocate(rounded);
  if (absl::IsResourceExhausted(data.status()) && !free_.empty()) {
    ReleaseFree();
    data = device_.Allocate(rounded);
  }
  if (absl::IsResourceExhausted(data.status())) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the request needs ", bytes,
                     " bytes of device memory, and within the "
                     "limit of ",
                     limit, " (--cuda-memory-limit) the device has no more: ",
                     data.status().message()));
  }
  if (!data.ok()) return data.status();
  held_ += rounded;
  lent_ += rounded;
  return Block(this, *data, rounded);
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
