#ifndef ATTENTION_SERVER_MEMORY_MEMORY_LIMIT_H_
#define ATTENTION_SERVER_MEMORY_MEMORY_LIMIT_H_

#include <cstdint>
#include <limits>
#include <string>

#include "core/control_groups.h"

namespace attention::server {

/// What bounds the memory of a process, and where it is told.
struct MemorySources {
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

  ControlGroups groups;
  /// Bytes of memory that there are addresses for (RLIMIT_AS): half of what is
  /// left beside the threads' stacks, because addresses of what was freed stay
  /// taken for the next block of about its size.
  int64_t address_space = kUnlimited;
  /// Bytes that the machine has.
  int64_t physical = kUnlimited;

  /// Of this process, where it is still to make so many threads.
  static MemorySources OfProcess(int threads);
};

struct MemoryBound {
  int64_t bytes = 0;
  std::string of;  // in words: "the machine's memory"
};

/// The smallest of them. Of a control group, its own limit and those of all
/// groups that it is in.
MemoryBound SmallestBound(const MemorySources& sources);

/// What a server takes where nothing else is said: 80 % of that.
inline int64_t DefaultMemoryLimit(const MemoryBound& bound) {
  return bound.bytes / 5 * 4;
}

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MEMORY_MEMORY_LIMIT_H_
