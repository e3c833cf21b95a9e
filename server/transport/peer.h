#ifndef ATTENTION_SERVER_TRANSPORT_PEER_H_
#define ATTENTION_SERVER_TRANSPORT_PEER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace attention::server {

/// The other end of a connection; as long as the connection is open, no other
/// one has the same.
struct Peer {
  // "127.0.0.1", "2001:db8::1", "fe80::1%eth0"; of a Unix-domain socket
  // "process 123 of user 1000"
  std::string address;
  uint64_t port = 0;  // of a Unix-domain socket its number

  template <typename H>
  friend H AbslHashValue(H hash, const Peer& peer) {
    return H::combine(std::move(hash), peer.address, peer.port);
  }
  friend bool operator==(const Peer&, const Peer&) = default;
};

/// Of a connected socket. None where it is not connected any more, or is
/// neither a TCP nor a Unix-domain socket. An IPv4 address within an IPv6 one
/// is an IPv4 address, as for gRPC.
std::optional<Peer> PeerOfSocket(int fd);

/// Whether the other end of a new connection has closed it by now and sent
/// nothing: it is not worth serving.
bool HasLeft(int fd);

/// Of what grpc::ServerContext::peer() says: "ipv4:127.0.0.1:50000",
/// "ipv6:[::1]:50000", where some versions of gRPC percent-encode; of a
/// Unix-domain socket what unix_peer.h has it say. None for "unix:".
std::optional<Peer> PeerOfCall(absl::string_view grpc_peer);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TRANSPORT_PEER_H_
