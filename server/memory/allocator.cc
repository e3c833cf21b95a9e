#include "server/memory/allocator.h"

#include <jemalloc/jemalloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

// Null where the process has another allocator: the sanitizers have their own.
#pragma weak mallctl

namespace attention::server {
namespace {

// From here on a quarter more than the limit, as was seen with 512 MiB, is
// little beside what the limit leaves free.
constexpr int64_t kPlenty = int64_t{4} << 30;

// Milliseconds for which large blocks are kept. Small blocks cannot use them:
// who sends large messages and then small ones would need twice the memory for
// as long.
constexpr ssize_t kLargeDecay = 2000;

template <typename Number>
Number Get(const char* name) {
  Number number = 0;
  size_t size = sizeof number;
  mallctl(name, &number, &size, nullptr, 0);
  return number;
}

// An arena that is not in use yet refuses it, and takes the default later.
template <typename Number>
void Set(const std::string& name, Number number) {
  mallctl(name.c_str(), nullptr, nullptr, &number, sizeof number);
}

void GiveBackAtOnce() {
  Set<ssize_t>("arenas.dirty_decay_ms", 0);  // of those to come
  const auto arenas = Get<unsigned>("arenas.narenas");
  for (unsigned i = 0; i < arenas; ++i) {
    Set<ssize_t>(absl::StrCat("arena.", i, ".dirty_decay_ms"), 0);
  }
}

// Blocks from opt.oversize_threshold on (4 MiB) have an arena of their own,
// which gives them back once they are freed: every page of the next message
// of that size would be faulted in anew. Without that arena (a threshold of 0)
// every processor's keeps large blocks and cuts them up for small ones, which
// takes more memory and spares fewer page faults. So it stays, and keeps them
// for calls that follow at once.
void KeepLargeBlocks() {
  const auto threshold = Get<size_t>("opt.oversize_threshold");
  void* block = threshold == 0 ? nullptr : std::malloc(threshold);
  if (block == nullptr) return;  // no such arena
  unsigned index = 0;
  size_t size = sizeof index;
  const int failed = mallctl("arenas.lookup", &index, &size,
                             static_cast<void*>(&block), sizeof block);
  std::free(block);
  if (failed != 0) return;
  const std::string arena = absl::StrCat("arena.", index);
  Set(arena + ".dirty_decay_ms",
      std::min(kLargeDecay, Get<ssize_t>("arenas.dirty_decay_ms")));
  // From this size on blocks go back at once, whatever the decay is.
  Set(arena + ".oversize_threshold", std::numeric_limits<size_t>::max());
}

}  // namespace

void KeepFreedMemoryWithin(int64_t memory_limit) {
  if (mallctl == nullptr) return;
  const char* const set = std::getenv("MALLOC_CONF");
  const bool is_told =
      set != nullptr && absl::StrContains(set, "dirty_decay_ms");
  if (memory_limit < kPlenty && !is_told) {
    GiveBackAtOnce();
  } else {
    KeepLargeBlocks();
  }
}

}  // namespace attention::server
