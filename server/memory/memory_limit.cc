#include "server/memory/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

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

// The smallest limit of `group`, "/a/b", and of those above it. In a container
// the group may have another name than outside: what is not there is passed by.
int64_t LimitOfGroups(const std::string& mount, absl::string_view group,
                      const char* file) {
  int64_t least = MemorySources::kUnlimited;
  while (true) {
    const auto limit = NumberIn(absl::StrCat(mount, group, "/", file));
    if (limit) least = std::min(least, *limit);
    const size_t slash = group.rfind('/');
    if (slash == absl::string_view::npos) return least;
    group = group.substr(0, slash);
  }
}

// Lines are "0::/a/b" for version 2, "7:cpu,memory:/a/b" for version 1.
int64_t LimitOfControlGroups(const MemorySources& sources) {
  std::ifstream file(sources.own_groups);
  int64_t least = MemorySources::kUnlimited;
  for (std::string line; std::getline(file, line);) {
    const std::vector<absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    // A group beyond the container's root begins with "/..".
    if (parts.size() != 3 || absl::StrContains(parts[2], "..")) continue;
    if (parts[1].empty()) {
      least = std::min(
          least, LimitOfGroups(sources.control_groups, parts[2], "memory.max"));
    } else if (absl::c_linear_search(std::vector<absl::string_view>(
                                         absl::StrSplit(parts[1], ',')),
                                     "memory")) {
      least = std::min(
          least, LimitOfGroups(absl::StrCat(sources.control_groups, "/memory"),
                               parts[2], "memory.limit_in_bytes"));
    }
  }
  return least;
}

// RLIMIT_AS counts what is mapped, thread stacks and programs as well.
int64_t AddressSpaceLeft() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return MemorySources::kUnlimited;
  }
  const int64_t mapped = NumberIn("/proc/self/statm").value_or(0) *
                         static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - mapped);
}

}  // namespace

MemorySources MemorySources::OfProcess() {
  MemorySources sources;
  sources.address_space = AddressSpaceLeft();
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
  consider(LimitOfControlGroups(sources), "the control group's memory");
  return bound;
}

}  // namespace attention::server
