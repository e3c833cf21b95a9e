#ifndef ATTENTION_SERVER_TRANSPORT_TCP_LISTENER_H_
#define ATTENTION_SERVER_TRANSPORT_TCP_LISTENER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/base/file_descriptor.h"

namespace attention::server {

/// Sockets that listen on one port; they do not block.
struct TcpListener {
  std::vector<FileDescriptor> sockets;  // one for each of the host's addresses
  int port = 0;
  bool loopback = true;  // nobody but this machine reaches any of them
};

/// Listens on all addresses of `host`, an IPv4 or IPv6 address (with or without
/// brackets) or a name. 0.0.0.0 and :: both mean every address of either kind.
/// Port 0 picks a free one. `flags` is what the options' names begin with in
/// messages: "--grpc".
///
/// INVALID_ARGUMENT where the address cannot be understood or is not this
/// machine's, UNAVAILABLE where the port is taken or not allowed; the message
/// begins with host and port.
absl::StatusOr<TcpListener> ListenOnTcp(const std::string& host, int port,
                                        absl::string_view flags = "--grpc");

/// "127.0.0.1:8001"; an IPv6 address gets its brackets.
std::string HostAndPort(const std::string& host, int port);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TRANSPORT_TCP_LISTENER_H_
