#ifndef ATTENTION_SERVER_UNIX_SOCKET_H_
#define ATTENTION_SERVER_UNIX_SOCKET_H_

#include <sys/stat.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"

/// The Unix-domain socket that a server listens on beside its port.
namespace attention::server {

/// Longest path of a socket, in bytes: the kernel's own bound.
inline constexpr size_t kMostSocketPathBytes = 107;

/// `path` as an address for gRPC, which reads "unix:" and percent-encoding.
std::string SocketTarget(const std::string& path);

/// Makes room for a socket at `path`: removes the one that a server left behind
/// which ended without removing it. OK where there is nothing any more.
///
/// UNAVAILABLE where a server listens there, INVALID_ARGUMENT where what is
/// there is no socket, or cannot be looked at; both leave it alone. The message
/// begins with the path.
absl::Status MakeRoomForSocket(const std::string& path);

/// Why nothing can listen on `path`, which gRPC has just failed to do: it says
/// only that. UNAVAILABLE, beginning with the path.
absl::Status WhyNoSocket(const std::string& path);

/// While it lives, the files that this process creates are its user's alone:
/// mode 0600 for a socket, so that nobody else can connect from the moment it
/// is there. For the whole process, so keep it short.
class OwnerOnlyFiles {
 public:
  OwnerOnlyFiles() : previous_(::umask(0177)) {}
  ~OwnerOnlyFiles() { ::umask(previous_); }
  OwnerOnlyFiles(const OwnerOnlyFiles&) = delete;
  OwnerOnlyFiles& operator=(const OwnerOnlyFiles&) = delete;

 private:
  const mode_t previous_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_UNIX_SOCKET_H_
