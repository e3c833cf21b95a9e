#include "server/transport/peer.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/transport/unix_peer.h"

namespace attention::server {
namespace {

std::string Ipv4Text(const in_addr& address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  return ::inet_ntop(AF_INET, &address, text.data(), text.size());
}

std::string Ipv6Text(const sockaddr_in6& address) {
  if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
    in_addr inner{};
    std::memcpy(&inner, &address.sin6_addr.s6_addr[12], sizeof(inner));
    return Ipv4Text(inner);
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  std::string name =
      ::inet_ntop(AF_INET6, &address.sin6_addr, text.data(), text.size());
  if (address.sin6_scope_id != 0) {
    std::array<char, IF_NAMESIZE> interface {};
    if (::if_indextoname(address.sin6_scope_id, interface.data()) != nullptr) {
      absl::StrAppend(&name, "%", interface.data());
    }
  }
  return name;
}

std::string PercentDecoded(absl::string_view text) {
  if (!absl::StrContains(text, '%')) return static_cast<std::string>(text);
  std::string decoded;
  while (!text.empty()) {
    if (text.size() >= 3 && text[0] == '%') {
      const std::string byte = absl::HexStringToBytes(text.substr(1, 2));
      if (absl::ascii_isxdigit(static_cast<unsigned char>(text[1])) &&
          absl::ascii_isxdigit(static_cast<unsigned char>(text[2]))) {
        decoded += byte;
        text.remove_prefix(3);
        continue;
      }
    }
    decoded += text[0];
    text.remove_prefix(1);
  }
  return decoded;
}

Peer PeerOf(const UnixPeer& peer) {
  return {absl::StrCat("process ", peer.process, " of user ", peer.user),
          peer.connection};
}

// Of what NameOf(UnixPeer) says after "unix-abstract:".
std::optional<Peer> UnixPeerOfName(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '.');
  UnixPeer peer;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &peer.process) ||
      !absl::SimpleAtoi(parts[1], &peer.user) ||
      !absl::SimpleAtoi(parts[2], &peer.connection)) {
    return std::nullopt;
  }
  return PeerOf(peer);
}

}  // namespace

std::optional<Peer> PeerOfSocket(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return std::nullopt;
  }
  if (address.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    return Peer{Ipv4Text(ipv4.sin_addr), ntohs(ipv4.sin_port)};
  }
  if (address.ss_family == AF_INET6) {
    const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address);
    return Peer{Ipv6Text(ipv6), ntohs(ipv6.sin6_port)};
  }
  const std::optional<UnixPeer> local = UnixPeerOfSocket(fd);
  return local ? std::optional(PeerOf(*local)) : std::nullopt;
}

bool HasLeft(int fd) {
  char first = 0;
  const ssize_t read = ::recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
  return read == 0 || (read < 0 && errno != EAGAIN && errno != EINTR);
}

std::optional<Peer> PeerOfCall(absl::string_view grpc_peer) {
  if (absl::ConsumePrefix(&grpc_peer, "unix-abstract:")) {
    return UnixPeerOfName(grpc_peer);
  }
  if (!absl::ConsumePrefix(&grpc_peer, "ipv4:") &&
      !absl::ConsumePrefix(&grpc_peer, "ipv6:")) {
    return std::nullopt;
  }
  const std::string text = PercentDecoded(grpc_peer);
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos ||
      !absl::SimpleAtoi(text.substr(colon + 1), &port) || port > UINT16_MAX) {
    return std::nullopt;
  }
  std::string address = text.substr(0, colon);
  if (address.size() > 2 && address.front() == '[' && address.back() == ']') {
    address = address.substr(1, address.size() - 2);
  }
  return Peer{std::move(address), port};
}

}  // namespace attention::server
