#include "core/control_groups.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace attention {
namespace {

// Time that the processes of a group may compute within a period, in
// microseconds, counted over all processors.
struct Quota {
  int64_t time = 0;
  int64_t period = 0;
};

// The numbers above 0 that files hold, one word after the other; nothing where
// one is missing, "max" (version 2's "none") or -1 (version 1's).
std::optional<std::vector<int64_t>> NumbersIn(
    const std::vector<std::string>& paths) {
  std::vector<int64_t> numbers;
  for (const std::string& path : paths) {
    std::ifstream file(path);
    for (std::string word; file >> word;) {
      int64_t number = 0;
      if (!absl::SimpleAtoi(word, &number) || number <= 0) return std::nullopt;
      numbers.push_back(number);
    }
  }
  return numbers;
}

std::optional<Quota> QuotaOf(const ControlGroupFolder& folder) {
  const auto numbers =
      folder.version == 2
          ? NumbersIn({absl::StrCat(folder.path, "/cpu.max")})
          : NumbersIn({absl::StrCat(folder.path, "/cpu.cfs_quota_us"),
                       absl::StrCat(folder.path, "/cpu.cfs_period_us")});
  if (!numbers || numbers->size() != 2) return std::nullopt;
  return Quota{numbers->front(), numbers->back()};
}

// Beyond the container's root; "/..d" is a name.
bool BeginsAbove(absl::string_view group) {
  return group == "/.." || absl::StartsWith(group, "/../");
}

}  // namespace

// Lines are "0::/a/b" for version 2, "7:cpu,cpuacct:/a/b" for version 1.
std::vector<ControlGroupFolder> FoldersOf(const ControlGroups& groups,
                                          absl::string_view controller) {
  std::vector<ControlGroupFolder> folders;
  std::ifstream file(groups.own);
  for (std::string line; std::getline(file, line);) {
    const std::vector<absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || BeginsAbove(parts[2])) continue;
    const int version = parts[1].empty() ? 2 : 1;
    std::string root = groups.mount;
    if (version == 1) {
      const std::vector<absl::string_view> controllers =
          absl::StrSplit(parts[1], ',');
      if (!absl::c_linear_search(controllers, controller)) continue;
      absl::StrAppend(&root, "/", controller);
    }
    absl::string_view group = parts[2];
    while (true) {
      folders.push_back({absl::StrCat(root, group), version});
      const size_t slash = group.rfind('/');
      if (slash == absl::string_view::npos) break;
      group = group.substr(0, slash);
    }
  }
  return folders;
}

int ProcessorsWithin(const ControlGroups& groups, int allowed) {
  int64_t least = allowed;
  for (const ControlGroupFolder& folder : FoldersOf(groups, "cpu")) {
    const auto quota = QuotaOf(folder);
    if (!quota) continue;
    const int64_t whole = quota->time / quota->period;
    least = std::min(least, whole + (quota->time % quota->period > 0 ? 1 : 0));
  }
  return static_cast<int>(least);
}

}  // namespace attention
