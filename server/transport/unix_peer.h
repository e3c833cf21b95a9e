#ifndef ATTENTION_SERVER_TRANSPORT_UNIX_PEER_H_
#define ATTENTION_SERVER_TRANSPORT_UNIX_PEER_H_

#include <cstdint>
#include <optional>
#include <string>

namespace attention::server {

/// Who connected to a Unix-domain socket, and which connection it is.
struct UnixPeer {
  int process = 0;  // 0: of another namespace
  uint32_t user = 0;
  uint64_t connection =
      0;  // the socket's inode, of no other one while it lives
};

/// Of a connected socket, from the kernel (SO_PEERCRED, unix(7)): who it was
/// when it connected. None of other sockets.
std::optional<UnixPeer> UnixPeerOfSocket(int fd);

/// As gRPC names it in grpc::ServerContext::peer(): "unix-abstract:" and
/// process, user and connection, with points between them.
std::string NameOf(const UnixPeer& peer);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TRANSPORT_UNIX_PEER_H_
