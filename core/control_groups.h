#ifndef ATTENTION_CORE_CONTROL_GROUPS_H_
#define ATTENTION_CORE_CONTROL_GROUPS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace attention {

/// Where Linux tells a process which control groups it is in, and what these
/// limit.
struct ControlGroups {
  /// Where the groups are, of version 1 or 2.
  std::string mount = "/sys/fs/cgroup";
  /// The process's groups, one a line.
  std::string own = "/proc/self/cgroup";
};

/// The files of one group may be in this folder.
struct ControlGroupFolder {
  std::string path;
  int version = 2;  // 1 or 2, which name their files differently
};

/// The folders of the process's groups that `controller` ("memory", "cpu")
/// governs, and of all groups above them: the limits of all hold. In a
/// container a group may have another name than outside, so a folder may be
/// missing.
std::vector<ControlGroupFolder> FoldersOf(const ControlGroups& groups,
                                          absl::string_view controller);

/// How many processors a process may keep busy that may run on `allowed` >= 1
/// of them: no more than the smallest quota of its groups, rounded up, and at
/// least 1.
int ProcessorsWithin(const ControlGroups& groups, int allowed);

}  // namespace attention

#endif  // ATTENTION_CORE_CONTROL_GROUPS_H_
