// What counts connections and calls of callers that do not behave; connections
// of a real server are in tests/attacks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/token_bucket.h"
#include "server/scheduling/open_calls.h"
#include "server/transport/acceptor.h"
#include "server/transport/connection_limits.h"
#include "server/transport/connections.h"
#include "server/transport/peer.h"
#include "server/transport/tcp_listener.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/connections_fixture.h"

namespace attention::server {
namespace {

using ::attention::test::StatusIs;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Answer = Connections::Answer;

TEST(PeerOfCall, ReadsWhatGrpcSays) {
  EXPECT_EQ(PeerOfCall("ipv4:127.0.0.1:80"), (Peer{"127.0.0.1", 80}));
  EXPECT_EQ(PeerOfCall("ipv6:[::1]:65535"), (Peer{"::1", 65535}));
  EXPECT_EQ(PeerOfCall("ipv6:%5Bfe80::1%25eth0%5D:1"),
            (Peer{"fe80::1%eth0", 1}));
}

TEST(PeerOfCall, IsTheProcessBehindAUnixDomainSocket) {
  EXPECT_EQ(PeerOfCall("unix-abstract:123.1000.77"),
            (Peer{"process 123 of user 1000", 77}));
}

// Of the other end of a Unix-domain socket: gRPC asks for it by this function.
std::string NameOfPeer(int socket) {
  sockaddr_un address{};
  socklen_t size = sizeof(address);
  EXPECT_EQ(::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size),
            0);
  return {address.sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1};
}

TEST(PeerOfSocket, IsTheProcessBehindAUnixDomainSocket) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const FileDescriptor first(ends[0]);
  const FileDescriptor second(ends[1]);
  const std::optional<Peer> peer = PeerOfSocket(first.get());
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->address,
            absl::StrCat("process ", ::getpid(), " of user ", ::getuid()));
  EXPECT_NE(peer, PeerOfSocket(second.get()));
  EXPECT_EQ(PeerOfCall(absl::StrCat("unix-abstract:", NameOfPeer(first.get()))),
            peer);
}

// A socket with a name in the abstract namespace (unix(7)).
FileDescriptor BoundTo(const std::string& name, sockaddr_un& address) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  address = {};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                          name.size())),
            0);
  return socket;
}

TEST(PeerOfSocket, IsTheProcessWhateverNameItsEndHas) {
  const std::string name = absl::StrCat("attention-", ::getpid());
  sockaddr_un address{};
  const FileDescriptor listener = BoundTo(name, address);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  sockaddr_un own{};
  const std::string chosen = absl::StrCat(::getpid() + 1, ".0.77");
  const FileDescriptor caller = BoundTo(chosen, own);
  ASSERT_EQ(::connect(caller.get(), reinterpret_cast<sockaddr*>(&address),
                      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                             1 + name.size())),
            0);
  const FileDescriptor accepted(::accept(listener.get(), nullptr, nullptr));
  const std::optional<Peer> peer = PeerOfSocket(accepted.get());
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->address,
            absl::StrCat("process ", ::getpid(), " of user ", ::getuid()));
  EXPECT_EQ(
      PeerOfCall(absl::StrCat("unix-abstract:", NameOfPeer(accepted.get()))),
      peer);
}

TEST(PeerOfCall, HasNoNameForOthers) {
  for (const char* other :
       {"", "unix:", "unix:/run/s", "unix-abstract:1.2", "unix-abstract:a.b.c",
        "ipv4:", "ipv4:1.2.3.4", "ipv4:1.2.3.4:70000", "ipv4:1.2.3.4:x"}) {
    EXPECT_EQ(PeerOfCall(other), std::nullopt) << other;
  }
}

// Connects to it, without waiting for what becomes of the connection.
FileDescriptor ConnectTo(int port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address),
                      sizeof(address)),
            0);
  return socket;
}

TEST(Acceptor, StopsWhileEveryHandoverIsBusy) {
  absl::StatusOr<TcpListener> tcp = ListenOnTcp("127.0.0.1", 0);
  ASSERT_TRUE(tcp.ok()) << tcp.status();
  Ledger ledger;
  Connections connections(ledger, {.total = 10, .per_peer = 10});
  std::latch busy(1);
  std::latch stopped(1);
  std::latch ended(1);
  std::vector<Acceptor::Way> ways;
  ways.push_back({std::move(tcp->sockets), {[&](int socket) {
                    const FileDescriptor flooded(socket);
                    busy.count_down();
                    stopped.wait();
                    ended.count_down();
                  }}});
  Acceptor acceptor(std::move(ways), connections);
  const FileDescriptor first = ConnectTo(tcp->port);
  busy.wait();
  const FileDescriptor second = ConnectTo(tcp->port);
  while (connections.accepted() < 2) std::this_thread::yield();
  acceptor.Stop();
  char byte = 0;
  EXPECT_LE(::recv(second.get(), &byte, 1, 0), 0);  // nobody serves it
  stopped.count_down();
  ended.wait();
}

TEST(OpenCallLimits, FollowTheMemory) {
  const OpenCallLimits limits = OpenCallLimits::For(int64_t{512} << 20);
  EXPECT_EQ(limits.total, 3276);
  EXPECT_EQ(limits.per_address, 1638);
  EXPECT_EQ(OpenCallLimits::For(1 << 20).total, OpenCallLimits::kLeast);
}

TEST(OpenCallLimits, LeaveAnAddressMoreThanOneConnection) {
  OpenCallLimits limits{.total = 128, .per_address = 64};
  EXPECT_EQ(limits.OfConnection(256), 32);
  EXPECT_EQ(limits.OfConnection(10), 10);
  limits.per_address = 1;
  EXPECT_EQ(limits.OfConnection(256), 1);
}

TEST(OpenCallLimits, LeaveNoRoomForStreamsBeforeTheyAreTooMany) {
  Ledger ledger;
  const OpenCallLimits limits{.total = 16, .per_address = 8};
  auto calls = ledger.Take(Kept::kCalls, {.address = "a"}, 5);
  EXPECT_THAT(limits.CheckRoom(ledger, "a"), test::IsOk());
  ledger.Resize(calls, 6);
  EXPECT_THAT(limits.CheckRoom(ledger, "a"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("6 open calls")));
  EXPECT_THAT(limits.CheckRoom(ledger, "b"), test::IsOk());
}

TEST(ConnectionLimits, FitTheDescriptorsByDefault) {
  const auto few = DecideConnectionLimits({}, 1024);
  ASSERT_THAT(few, test::IsOk());
  EXPECT_EQ(few->total, 448);  // two each, 128 are left
  EXPECT_EQ(few->per_peer, 224);
  ServerOptions sharing;
  sharing.allow_shared_memory = true;
  const auto fewer = DecideConnectionLimits(sharing, 4096);
  ASSERT_THAT(fewer, test::IsOk());
  EXPECT_EQ(fewer->total, 1472);  // one for each of 1024 regions as well
  const auto many = DecideConnectionLimits({}, 1 << 20);
  ASSERT_THAT(many, test::IsOk());
  EXPECT_EQ(many->total, 8192);
}

TEST(ConnectionLimits, AreRefusedWhereTheyDoNotFit) {
  ServerOptions options;
  options.max_connections = 449;
  EXPECT_THAT(
      DecideConnectionLimits(options, 1024),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("--max-connections: 449 (expected at most 448")));
}

TEST_F(ConnectionsTest, AreBounded) {
  Ledger ledger;
  Connections connections(ledger, {.total = 2, .per_peer = 2});
  const auto first = Connect();
  auto second = Connect();
  const auto third = Connect();
  EXPECT_EQ(connections.Add(first.first.get()), Answer::kTaken);
  EXPECT_EQ(connections.Add(second.first.get()), Answer::kTaken);
  EXPECT_EQ(connections.Add(third.first.get()), Answer::kFull);
  // As gRPC ends one.
  ::shutdown(second.first.get(), SHUT_RDWR);
  second = {};
  EXPECT_EQ(connections.Add(third.first.get()), Answer::kTaken);
}

TEST_F(ConnectionsTest, AreBoundedForEachAddress) {
  Ledger ledger;
  Connections connections(ledger, {.total = 3, .per_peer = 1});
  const auto first = Connect();
  const auto second = Connect();
  EXPECT_EQ(connections.Add(first.first.get()), Answer::kTaken);
  EXPECT_EQ(connections.Add(second.first.get()), Answer::kPeerFull);
}

TEST_F(ConnectionsTest, OfAnAddressWithTooManyOpenCallsAreNotTaken) {
  Ledger ledger;
  Connections connections(ledger, {.total = 3, .per_peer = 3},
                          /*most_calls=*/1);
  const auto first = Connect();
  auto calls = ledger.Take(Kept::kCalls, {.address = "127.0.0.1"}, 2);
  EXPECT_EQ(connections.Add(first.first.get()), Answer::kPeerCalls);
  ledger.Resize(calls, 1);
  EXPECT_EQ(connections.Add(first.first.get()), Answer::kTaken);
}

TEST_F(ConnectionsTest, ThatReceivedSomethingAreTold) {
  Ledger ledger;
  Connections connections(ledger, {.total = 2, .per_peer = 2});
  const auto first = Connect();
  const auto second = Connect();
  ASSERT_EQ(connections.Add(first.first.get()), Answer::kTaken);
  ASSERT_EQ(connections.Add(second.first.get()), Answer::kTaken);
  EXPECT_EQ(connections.TakeArrived().size(), 2) << "new";
  EXPECT_THAT(connections.TakeArrived(), testing::IsEmpty());
  ASSERT_EQ(::send(first.second.get(), "x", 1, 0), 1);
  const Peer peer = *PeerOfSocket(first.first.get());
  EXPECT_THAT(connections.TakeArrived(), testing::ElementsAre(peer));
  EXPECT_THAT(connections.TakeArrived(), testing::IsEmpty()) << "told once";
  EXPECT_TRUE(connections.HasUnread(peer));
  EXPECT_FALSE(connections.HasUnread(*PeerOfSocket(second.first.get())));
}

// gRPC may be faster than who asks.
TEST_F(ConnectionsTest, WhatWasReadAtOnceIsToldToo) {
  Ledger ledger;
  Connections connections(ledger, {.total = 2, .per_peer = 2});
  const auto [server, caller] = Connect();
  ASSERT_EQ(connections.Add(server.get()), Answer::kTaken);
  connections.TakeArrived();
  ASSERT_EQ(::send(caller.get(), "x", 1, 0), 1);
  char byte = 0;
  ASSERT_EQ(::recv(server.get(), &byte, 1, 0), 1);
  EXPECT_THAT(connections.TakeArrived(),
              testing::ElementsAre(*PeerOfSocket(server.get())));
}

TEST_F(ConnectionsTest, ThatTheCallerEndsAreCountedUntilTheServerEndsThem) {
  Ledger ledger;
  Connections connections(ledger, {.total = 2, .per_peer = 2});
  auto [server, caller] = Connect();
  ASSERT_EQ(connections.Add(server.get()), Answer::kTaken);
  ::shutdown(caller.get(), SHUT_WR);
  EXPECT_EQ(connections.Collect(), 1);
  ::shutdown(server.get(), SHUT_RDWR);
  EXPECT_EQ(connections.Collect(), 0);
}

TEST_F(ConnectionsTest, CloseTheOneOfACall) {
  Ledger ledger;
  Connections connections(ledger, {.total = 2, .per_peer = 2});
  const auto first = Connect();
  const auto second = Connect();
  ASSERT_EQ(connections.Add(first.first.get()), Answer::kTaken);
  ASSERT_EQ(connections.Add(second.first.get()), Answer::kTaken);
  connections.Close(NameOf(first.first));
  EXPECT_TRUE(IsClosed(first.second));
  EXPECT_FALSE(IsClosed(second.second));
  connections.Close("ipv4:127.0.0.1:1");  // nobody's
  connections.Close("unix:");
}

TEST_F(ConnectionsTest, CloseOneWhoseCallsAreResetInAStorm) {
  Ledger ledger;
  Connections connections(ledger, {.total = 1, .per_peer = 1});
  const auto [server, caller] = Connect();
  ASSERT_EQ(connections.Add(server.get()), Answer::kTaken);
  const std::string name = NameOf(server);
  for (int i = 0; i < 1000; ++i) connections.NoteReset(name);
  EXPECT_FALSE(IsClosed(caller));
  // More than are given back meanwhile, on however slow a machine.
  for (int i = 0; i < 1'000'000 && !IsClosed(caller); ++i) {
    connections.NoteReset(name);
  }
  EXPECT_TRUE(IsClosed(caller));
}

TEST_F(ConnectionsTest, CanAllBeShutDownAndWaitedFor) {
  Ledger ledger;
  Connections connections(ledger, {.total = 2, .per_peer = 2});
  const auto [server, caller] = Connect();
  ASSERT_EQ(connections.Add(server.get()), Answer::kTaken);
  const auto now = std::chrono::steady_clock::now();
  EXPECT_FALSE(connections.WaitUntilNone(now));
  connections.ShutDownAll(SHUT_RDWR);
  EXPECT_TRUE(connections.WaitUntilNone(now + std::chrono::minutes(1)));
  EXPECT_TRUE(IsClosed(caller));
}

}  // namespace
}  // namespace attention::server
