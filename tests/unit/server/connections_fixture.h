#ifndef ATTENTION_TESTS_UNIT_SERVER_CONNECTIONS_FIXTURE_H_
#define ATTENTION_TESTS_UNIT_SERVER_CONNECTIONS_FIXTURE_H_

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/file_descriptor.h"
#include "server/transport/peer.h"
#include "server/transport/tcp_listener.h"

namespace attention::server {

/// A listening socket and connections to it, as callers have them.
class ConnectionsTest : public testing::Test {
 protected:
  ConnectionsTest() : listener_(*ListenOnTcp("127.0.0.1", 0)) {}

  // Both ends; the first is the server's.
  std::pair<FileDescriptor, FileDescriptor> Connect() {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    const int listening = listener_.sockets[0].get();
    auto* any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::getsockname(listening, any, &size), 0);
    FileDescriptor caller(::socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(::connect(caller.get(), any, size), 0);
    FileDescriptor server(::accept(listening, nullptr, nullptr));
    EXPECT_TRUE(server.ok());
    return {std::move(server), std::move(caller)};
  }

  static std::string NameOf(const FileDescriptor& server) {
    const std::optional<Peer> peer = PeerOfSocket(server.get());
    return absl::StrCat("ipv4:", peer->address, ":", peer->port);
  }

  // What the caller's end reads: nothing more where it was closed.
  static bool IsClosed(const FileDescriptor& caller) {
    char byte = 0;
    return ::recv(caller.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }

  const TcpListener listener_;
};

}  // namespace attention::server

#endif  // ATTENTION_TESTS_UNIT_SERVER_CONNECTIONS_FIXTURE_H_
