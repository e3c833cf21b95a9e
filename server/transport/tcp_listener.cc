#include "server/transport/tcp_listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// In network byte order, as in the address.
in_port_t& PortOf(sockaddr_storage& address) {
  return address.ss_family == AF_INET6
             ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
             : reinterpret_cast<sockaddr_in&>(address).sin_port;
}

bool SetOption(const FileDescriptor& socket, int level, int option, int value) {
  return ::setsockopt(socket.get(), level, option, &value, sizeof(value)) == 0;
}

bool IsLoopback(const sockaddr_storage& address) {
  const auto is_loopback = [](uint32_t ipv4) { return ipv4 >> 24 == 127; };
  if (address.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    return is_loopback(ntohl(ipv4.sin_addr.s_addr));
  }
  const in6_addr& ipv6 =
      reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (!IN6_IS_ADDR_V4MAPPED(&ipv6)) return IN6_IS_ADDR_LOOPBACK(&ipv6);
  return ipv6.s6_addr[12] == 127;
}

// Listens on `address`, whose port it fills in where it is 0. The error that it
// ends with, 0 for none.
int Listen(sockaddr_storage& address, socklen_t size, bool both_families,
           FileDescriptor& socket) {
  socket = FileDescriptor(::socket(
      address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.ok()) return errno;
  // A port that is only waiting for its last packets is not taken. Without
  // SO_REUSEPORT: else a second server on the same port starts, and each gets
  // some of the calls.
  if (!SetOption(socket, SOL_SOCKET, SO_REUSEADDR, 1)) return errno;
  if (address.ss_family == AF_INET6 &&
      !SetOption(socket, IPPROTO_IPV6, IPV6_V6ONLY, both_families ? 0 : 1)) {
    return errno;
  }
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.get(), any, size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0 ||
      ::getsockname(socket.get(), any, &size) != 0) {
    return errno;
  }
  return 0;
}

// What 0.0.0.0 and :: mean: every address of this machine.
int ListenEverywhere(int port, TcpListener& listener) {
  sockaddr_storage address{};
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address);
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_port = htons(static_cast<uint16_t>(port));
  FileDescriptor socket;
  int error = Listen(address, sizeof(ipv6), /*both_families=*/true, socket);
  if (error == EAFNOSUPPORT || error == EADDRNOTAVAIL) {  // without IPv6
    address = {};
    auto& ipv4 = reinterpret_cast<sockaddr_in&>(address);
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(static_cast<uint16_t>(port));
    error = Listen(address, sizeof(ipv4), /*both_families=*/false, socket);
  }
  if (error != 0) return error;
  listener.port = ntohs(PortOf(address));
  listener.loopback = false;
  listener.sockets.push_back(std::move(socket));
  return 0;
}

// Listens on each address that this machine has. The error where there is none
// such, or where one's port cannot be had.
int ListenOnEach(const addrinfo* found, TcpListener& listener) {
  int missing = EADDRNOTAVAIL;
  for (; found != nullptr; found = found->ai_next) {
    sockaddr_storage address{};
    std::copy_n(reinterpret_cast<const char*>(found->ai_addr),
                found->ai_addrlen, reinterpret_cast<char*>(&address));
    if (listener.port != 0) {  // 0 was asked for: all get the first one's
      PortOf(address) = htons(static_cast<uint16_t>(listener.port));
    }
    FileDescriptor socket;
    const int error =
        Listen(address, found->ai_addrlen, /*both_families=*/false, socket);
    if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) {
      missing = error;
      continue;
    }
    if (error != 0) return error;
    listener.port = ntohs(PortOf(address));
    listener.loopback = listener.loopback && IsLoopback(address);
    listener.sockets.push_back(std::move(socket));
  }
  return listener.sockets.empty() ? missing : 0;
}

bool IsWildcard(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr ==
           htonl(INADDR_ANY);
  }
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_UNSPECIFIED(
             &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

std::string WhatToDo(int error, absl::string_view flags) {
  switch (error) {
    case EADDRINUSE:
      return absl::StrCat(" (another program listens there; ", flags,
                          "-port takes another port, 0 any that is free)");
    case EACCES:
      return absl::StrCat(" (ports below 1024 may need a privilege; ", flags,
                          "-port takes another)");
    case EADDRNOTAVAIL:
      return " (this machine has no such address)";
    default:
      return "";
  }
}

}  // namespace

std::string HostAndPort(const std::string& host, int port) {
  const bool bare_ipv6 =
      host.find(':') != std::string::npos && host.front() != '[';
  return bare_ipv6 ? absl::StrCat("[", host, "]:", port)
                   : absl::StrCat(host, ":", port);
}

absl::StatusOr<TcpListener> ListenOnTcp(const std::string& host, int port,
                                        absl::string_view flags) {
  const std::string where = HostAndPort(host, port);
  std::string name = host;
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') {
    name = name.substr(1, name.size() - 2);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int unknown =
      ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (unknown != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot listen on ", where, ": ", ::gai_strerror(unknown), " (", flags,
        "-address is an IP address or a host name, without a port)"));
  }
  const Addresses addresses(found, &::freeaddrinfo);
  TcpListener listener;
  const int error = IsWildcard(*addresses->ai_addr)
                        ? ListenEverywhere(port, listener)
                        : ListenOnEach(addresses.get(), listener);
  if (error == 0) return listener;
  const std::string message = absl::StrCat(
      "cannot listen on ", where, ": ", std::generic_category().message(error),
      WhatToDo(error, flags));
  return error == EADDRNOTAVAIL ? absl::InvalidArgumentError(message)
                                : absl::UnavailableError(message);
}

}  // namespace attention::server
