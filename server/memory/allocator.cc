#include "server/memory/allocator.h"

#include <jemalloc/jemalloc.h>

#include <cstddef>
#include <cstdlib>
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

void SetDecay(const std::string& name, ssize_t milliseconds) {
  // An arena that is not in use yet refuses it, and takes the default later.
  mallctl(name.c_str(), nullptr, nullptr, &milliseconds, sizeof milliseconds);
}

}  // namespace

void KeepFreedMemoryWithin(int64_t memory_limit) {
  if (memory_limit >= kPlenty || mallctl == nullptr) return;
  const char* const set = std::getenv("MALLOC_CONF");
  if (set != nullptr && absl::StrContains(set, "dirty_decay_ms")) return;
  SetDecay("arenas.dirty_decay_ms", 0);  // of those to come
  unsigned arenas = 0;
  size_t size = sizeof arenas;
  mallctl("arenas.narenas", &arenas, &size, nullptr, 0);
  for (unsigned i = 0; i < arenas; ++i) {
    SetDecay(absl::StrCat("arena.", i, ".dirty_decay_ms"), 0);
  }
}

}  // namespace attention::server
