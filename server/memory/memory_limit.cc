#include "server/memory/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/control_groups.h"

namespace attention::server {
namespace {

// The number that a file holds; nothing where there is none, or "max".
std::optional<int64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  uint64_t number = 0;
  if (!(file >> word) || !absl::SimpleAtoi(word, &number)) return std::nullopt;
  // Version 1 has a number that no machine reaches for "none".
  constexpr uint64_t kNone = uint64_t{1} << 60;
  if (number >= kNone) return std::nullopt;
  return static_cast<int64_t>(number);
}

int64_t LimitOfControlGroups(const ControlGroups& groups) {
  int64_t least = MemorySources::kUnlimited;
  for (const ControlGroupFolder& folder : FoldersOf(groups, "memory")) {
    const char* file =
        folder.version == 2 ? "/memory.max" : "/memory.limit_in_bytes";
    const auto limit = NumberIn(absl::StrCat(folder.path, file));
    if (limit) least = std::min(least, *limit);
  }
  return least;
}

// What each thread takes of it, as glibc has it.
int64_t StackBytes() {
  constexpr int64_t kUsual = 8 << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0) return kUsual;
  return limit.rlim_cur == RLIM_INFINITY ? kUsual
                                         : static_cast<int64_t>(limit.rlim_cur);
}

// RLIMIT_AS counts what is mapped, stacks and programs as well.
int64_t AddressSpaceLeft(int threads) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return MemorySources::kUnlimited;
  }
  const int64_t mapped = NumberIn("/proc/self/statm").value_or(0) *
                         static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  const int64_t left =
      static_cast<int64_t>(limit.rlim_cur) - mapped - threads * StackBytes();
  return std::max<int64_t>(0, left / 2);
}

}  // namespace

MemorySources MemorySources::OfProcess(int threads) {
  MemorySources sources;
  sources.address_space = AddressSpaceLeft(threads);
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  if (pages > 0) sources.physical = pages * sysconf(_SC_PAGESIZE);
  return sources;
}

MemoryBound SmallestBound(const MemorySources& sources) {
  MemoryBound bound{sources.physical, "the machine's memory"};
  const auto consider = [&bound](int64_t bytes, const char* of) {
    if (bytes < bound.bytes) bound = {bytes, of};
  };
  consider(sources.address_space, "the address space left (ulimit -v)");
  consider(LimitOfControlGroups(sources.groups), "the control group's memory");
  return bound;
}

}  // namespace attention::server
