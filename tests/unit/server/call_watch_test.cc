// What closes connections with too many open calls, told of them by the test.
#include "server/transport/call_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/server/connections_fixture.h"

namespace attention::server {
namespace {

using channelz::Calls;
using channelz::Socket;

constexpr int64_t kPerConnection = 10;
constexpr Calls kTooMany{.started = 100, .open = 100};

class CallWatchTest : public ConnectionsTest {
 protected:
  // A connection that has received something.
  std::pair<FileDescriptor, FileDescriptor> ConnectAndSend() {
    auto ends = Connect();
    EXPECT_EQ(connections_.Add(ends.first.get()), Connections::Answer::kTaken);
    EXPECT_EQ(::send(ends.second.get(), "x", 1, 0), 1);
    return ends;
  }

  // Within a minute.
  static bool Becomes(const std::function<bool()>& true_some_time) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!true_some_time()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }

  Ledger ledger_;
  const OpenCallLimits limits_{.total = 1000, .per_address = 1000};
  Connections connections_{ledger_, {.total = 10, .per_peer = 10}};
};

TEST_F(CallWatchTest, AConnectionWithTooManyIsClosedOnce) {
  const auto ends = ConnectAndSend();
  std::atomic<int> looks = 0;
  const CallWatch watch({[name = NameOf(ends.first)](int64_t after) {
                           return after < 1 ? std::vector{Socket{1, name}}
                                            : std::vector<Socket>();
                         },
                         [&looks](int64_t) {
                           ++looks;
                           return kTooMany;
                         }},
                        kPerConnection, limits_, connections_, ledger_);
  EXPECT_TRUE(Becomes([&] { return IsClosed(ends.second) && looks > 5; }));
  EXPECT_EQ(watch.closed(), 1);
}

TEST_F(CallWatchTest, ARoundWithoutMemoryIsMadeUpFor) {
  const auto ends = ConnectAndSend();
  std::atomic<int> looks = 0;
  const CallWatch watch({[name = NameOf(ends.first)](int64_t after) {
                           return after < 1 ? std::vector{Socket{1, name}}
                                            : std::vector<Socket>();
                         },
                         [&looks](int64_t) {
                           if (++looks <= 2) throw std::bad_alloc();
                           return kTooMany;
                         }},
                        kPerConnection, limits_, connections_, ledger_);
  EXPECT_TRUE(Becomes([&] { return IsClosed(ends.second); }));
}

// gRPC reads a socket empty before it knows of the calls that came.
TEST_F(CallWatchTest, CallsThatGrpcTellsOfLateAreCounted) {
  const auto ends = ConnectAndSend();
  char byte = 0;
  ASSERT_EQ(::recv(ends.first.get(), &byte, 1, 0), 1);
  std::atomic<int> looks = 0;
  const CallWatch watch(
      {[name = NameOf(ends.first)](int64_t after) {
         return after < 1 ? std::vector{Socket{1, name}}
                          : std::vector<Socket>();
       },
       [&looks](int64_t) { return ++looks <= 5 ? Calls{} : kTooMany; }},
      kPerConnection, limits_, connections_, ledger_);
  EXPECT_TRUE(Becomes([&] { return IsClosed(ends.second); }));
}

// gRPC frees the socket of a connection that has ended some time later; by then
// another one may have come from the same port.
TEST_F(CallWatchTest, OfTwoSocketsWithOneNameTheNewerCounts) {
  const auto ends = ConnectAndSend();
  const auto unknown = ConnectAndSend();  // has them all listed again
  std::atomic<int> lists = 0;
  const CallWatch watch({[&lists, name = NameOf(ends.first)](int64_t after) {
                           std::vector<Socket> sockets;
                           for (const int64_t id : {1, 2}) {
                             if (id > after) sockets.push_back({id, name});
                           }
                           if (after == 0) ++lists;
                           return sockets;
                         },
                         [](int64_t) { return kTooMany; }},
                        kPerConnection, limits_, connections_, ledger_);
  EXPECT_TRUE(Becomes([&] { return lists > 3; }));
  EXPECT_EQ(watch.closed(), 1);
}

}  // namespace
}  // namespace attention::server
