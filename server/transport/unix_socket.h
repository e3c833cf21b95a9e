#ifndef ATTENTION_SERVER_TRANSPORT_UNIX_SOCKET_H_
#define ATTENTION_SERVER_TRANSPORT_UNIX_SOCKET_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/file_descriptor.h"

/// The Unix-domain socket that a server listens on beside its port.
namespace attention::server {

/// Longest path of a socket, in bytes: the kernel's own bound.
inline constexpr size_t kMostSocketPathBytes = 107;

/// `path` as an address for gRPC, which reads "unix:" and percent-encoding.
std::string SocketTarget(const std::string& path);

/// Listens at `path`; the socket does not block, and only this process's user
/// can connect (mode 0600). One that a server left behind which ended without
/// removing it is replaced. Who closes it removes the file.
///
/// UNAVAILABLE where a server listens there or the path cannot be bound,
/// INVALID_ARGUMENT where what is there is no socket; both leave it alone. The
/// message begins with the path.
absl::StatusOr<FileDescriptor> ListenOnUnixSocket(const std::string& path);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TRANSPORT_UNIX_SOCKET_H_
