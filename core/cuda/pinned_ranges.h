#ifndef ATTENTION_CORE_CUDA_PINNED_RANGES_H_
#define ATTENTION_CORE_CUDA_PINNED_RANGES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "absl/types/span.h"

namespace attention::cuda {

/// The host memory that devices reach, in ranges that do not overlap. Safe for
/// several threads at once.
class PinnedRanges {
 public:
  void Add(absl::Span<std::byte> range) {
    const std::unique_lock lock(mutex_);
    ends_[range.data()] = range.data() + range.size();
  }
  /// Of one that was added.
  void Remove(absl::Span<std::byte> range) {
    const std::unique_lock lock(mutex_);
    ends_.erase(range.data());
  }
  /// Whether `bytes` from `begin` on lie in one of them.
  bool Contain(const std::byte* begin, int64_t bytes) const {
    const std::shared_lock lock(mutex_);
    auto after = ends_.upper_bound(begin);
    if (after == ends_.begin()) return false;
    return begin + bytes <= std::prev(after)->second;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::map<const std::byte*, const std::byte*> ends_;  // by begin
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_PINNED_RANGES_H_
