#include "benchmarks/load/sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace attention::bench {
namespace {

union Address {
  sockaddr any;
  sockaddr_in tcp;
  sockaddr_un local;
};

Address Parse(absl::string_view text) {
  Address address{};
  if (absl::ConsumePrefix(&text, "unix:")) {
    address.local.sun_family = AF_UNIX;
    const size_t size = std::min<size_t>(text.size(), 107);
    std::copy_n(text.begin(), size, address.local.sun_path);
    return address;
  }
  int port = 0;
  absl::ConsumePrefix(&text, "tcp:127.0.0.1:");
  (void)absl::SimpleAtoi(text, &port);
  address.tcp.sin_family = AF_INET;
  address.tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.tcp.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

socklen_t Size(const Address& address) {
  return address.any.sa_family == AF_UNIX ? sizeof(sockaddr_un)
                                          : sizeof(sockaddr_in);
}

absl::Status Failure(absl::string_view what, const std::string& address) {
  return absl::UnavailableError(absl::StrCat(
      what, " ", address, ": ", std::generic_category().message(errno)));
}

void NoDelay(int fd) {
  const int on = 1;  // fails on a Unix-domain socket, which needs none
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

absl::StatusOr<Socket> Socket::ConnectTo(const std::string& address) {
  const Address parsed = Parse(address);
  Socket socket(::socket(parsed.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.fd_, &parsed.any, Size(parsed)) != 0) {
    return Failure("cannot connect to", address);
  }
  NoDelay(socket.fd_);
  return socket;
}

absl::StatusOr<Socket> Socket::ListenOn(const std::string& address) {
  const Address parsed = Parse(address);
  Socket socket(::socket(parsed.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(socket.fd_, &parsed.any, Size(parsed)) != 0 ||
      ::listen(socket.fd_, 8) != 0) {
    return Failure("cannot listen on", address);
  }
  return socket;
}

std::string Socket::TcpAddress() const {
  Address address{};
  socklen_t size = sizeof(address);
  ::getsockname(fd_, &address.any, &size);
  return absl::StrCat("tcp:127.0.0.1:", ntohs(address.tcp.sin_port));
}

Socket Socket::Accept() const {
  Socket accepted(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC));
  if (accepted.valid()) NoDelay(accepted.fd_);
  return accepted;
}

bool Socket::Send(absl::Span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool Socket::Receive(absl::Span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t received = ::recv(fd_, bytes.data(), bytes.size(), 0);
    if (received <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(received));
  }
  return true;
}

}  // namespace attention::bench
