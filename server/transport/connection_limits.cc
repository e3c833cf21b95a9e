#include "server/transport/connection_limits.h"

#include <sys/resource.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/memory/shared_memory_registry.h"

namespace attention::server {
namespace {

// gRPC's descriptor and ours, by which the connection is watched and closed.
constexpr int64_t kDescriptorsEach = 2;
// For all else: the log, devices, models, listening sockets, and connections
// that gRPC is just closing.
constexpr int64_t kReserve = 128;
// One for each region of shared memory that its owner has locked.
constexpr int64_t kReserveForRegions = SharedMemoryRegistry::kMostRegions;
constexpr int64_t kMostByDefault = 8192;

}  // namespace

absl::StatusOr<ConnectionLimits> DecideConnectionLimits(
    const ServerOptions& options, int64_t descriptors) {
  const int64_t reserve =
      kReserve + (options.allow_shared_memory ? kReserveForRegions : 0);
  const int64_t room = std::max<int64_t>(
      1, (descriptors - std::min(reserve, descriptors / 2)) / kDescriptorsEach);
  if (options.max_connections > room) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max-connections: ", options.max_connections, " (expected at most ",
        room, " here: the process may open ", descriptors,
        " files, ulimit -n)"));
  }
  ConnectionLimits limits;
  limits.total = options.max_connections > 0 ? options.max_connections
                                             : std::min(room, kMostByDefault);
  limits.per_peer = options.max_connections_per_peer > 0
                        ? options.max_connections_per_peer
                        : std::max<int64_t>(1, limits.total / 2);
  return limits;
}

int64_t RaiseDescriptorLimit() {
  constexpr rlim_t kEnough = 1 << 16;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  rlimit raised = limit;
  raised.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kEnough));
  if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 30));
}

}  // namespace attention::server
