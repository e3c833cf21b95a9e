#include "server/listen_error.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

// The error that binding to `address` ends with, 0 for none.
int BindError(const addrinfo& address) {
  const int socket_fd = ::socket(address.ai_family, SOCK_STREAM, 0);
  if (socket_fd < 0) return errno;
  // As gRPC does: a port that is only waiting for its last packets is not
  // taken.
  const int on = 1;
  ::setsockopt(socket_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const int bound = ::bind(socket_fd, address.ai_addr, address.ai_addrlen);
  const int error = bound == 0 && ::listen(socket_fd, 1) == 0 ? 0 : errno;
  ::close(socket_fd);
  return error;
}

const char* WhatToDo(int bind_error) {
  switch (bind_error) {
    case EADDRINUSE:
      return " (another program listens there; --grpc-port takes another port, "
             "0 any that is free)";
    case EACCES:
      return " (ports below 1024 may need a privilege; --grpc-port takes "
             "another)";
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

absl::Status WhyNotListening(const std::string& host, int port) {
  const std::string where = HostAndPort(host, port);
  std::string name = host;
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') {
    name = name.substr(1, name.size() - 2);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error =
      ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot listen on ", where, ": ", ::gai_strerror(error),
        " (--grpc-address is an IP address or a host name, without a port)"));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(
      found, &::freeaddrinfo);
  const int bind_error = BindError(*addresses);
  const std::string reason = bind_error == 0
                                 ? "the port could not be taken"
                                 : std::generic_category().message(bind_error);
  const std::string message = absl::StrCat("cannot listen on ", where, ": ",
                                           reason, WhatToDo(bind_error));
  return bind_error == EADDRNOTAVAIL ? absl::InvalidArgumentError(message)
                                     : absl::UnavailableError(message);
}

}  // namespace attention::server
