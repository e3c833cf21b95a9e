#include "server/transport/unix_peer.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

std::string Text(const UnixPeer& peer) {
  return absl::StrCat(peer.process, ".", peer.user, ".", peer.connection);
}

// The kernel's own call.
int KernelsName(int fd, sockaddr* address, socklen_t* size) {
  return static_cast<int>(::syscall(SYS_getpeername, fd, address, size));
}

}  // namespace

std::optional<UnixPeer> UnixPeerOfSocket(int fd) {
  sockaddr_un address{};
  socklen_t size = sizeof(address);
  if (KernelsName(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      address.sun_family != AF_UNIX) {
    return std::nullopt;
  }
  ucred credentials{};
  size = sizeof(credentials);
  struct stat file {};
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 ||
      ::fstat(fd, &file) != 0) {
    return std::nullopt;
  }
  return UnixPeer{credentials.pid, credentials.uid, file.st_ino};
}

std::string NameOf(const UnixPeer& peer) {
  return absl::StrCat("unix-abstract:", Text(peer));
}

}  // namespace attention::server

// In place of the C library's, for the whole program. Callers' ends of a
// Unix-domain socket mostly have no name, so gRPC, which asks for one with each
// new connection, says "unix:" of all their calls, and nothing else of it tells
// which connection a call is on. Here they have one: an abstract name (unix(7))
// with the caller's credentials, in place of one that the caller chose, too,
// which could be that of another. Sockets of other families are as the kernel
// has them. Where gRPC is linked so that it does not come here, callers over
// the socket are one, as before.
extern "C" __attribute__((visibility("default"))) int getpeername(
    int fd, sockaddr* __restrict address, socklen_t* __restrict size) noexcept {
  using attention::server::UnixPeer;
  const socklen_t room = *size;
  const int result = attention::server::KernelsName(fd, address, size);
  if (result != 0 || room < sizeof(sockaddr_un) ||
      address->sa_family != AF_UNIX) {
    return result;
  }
  const std::optional<UnixPeer> peer = attention::server::UnixPeerOfSocket(fd);
  if (!peer) return result;
  const std::string name = attention::server::Text(*peer);
  auto* own = reinterpret_cast<sockaddr_un*>(address);
  own->sun_path[0] = '\0';
  std::copy(name.begin(), name.end(), own->sun_path + 1);
  *size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return 0;
}
