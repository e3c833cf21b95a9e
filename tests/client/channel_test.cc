// What a channel does of itself: it finds lost connections, and spreads calls.
#include "client/cpp/src/channel.h"

#include <arpa/inet.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"
#include "attention/v1/attention.grpc.pb.h"
#include "attention_client/client.h"
#include "tests/client/requests.h"
#include "tests/client/scripted_service.h"

namespace attention::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A loopback port whose caller hears that HTTP/2 is spoken here, and no more:
// to it, a network that has dropped the connection.
class SilentPort {
 public:
  SilentPort() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(socket_, generic, size), 0);
    EXPECT_EQ(listen(socket_, 1), 0);
    EXPECT_EQ(getsockname(socket_, generic, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  SilentPort(const SilentPort&) = delete;
  SilentPort& operator=(const SilentPort&) = delete;
  ~SilentPort() {
    close(caller_);
    close(socket_);
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  void TakeCaller() {
    caller_ = accept(socket_, nullptr, nullptr);
    // Settings, of which there are none (RFC 9113, 6.5).
    constexpr std::string_view kSettings("\0\0\0\4\0\0\0\0\0", 9);
    EXPECT_EQ(send(caller_, kSettings.data(), kSettings.size(), 0), 9);
  }

 private:
  int socket_;
  int caller_ = -1;
  int port_ = 0;
};

TEST(ChannelTest, ACallEndsWhoseConnectionHasFallenSilent) {
  SilentPort port;
  const auto channel =
      MakeChannel({.target = port.address(), .max_attempts = 1},
                  grpc::InsecureChannelCredentials(),
                  {.time = milliseconds(100), .timeout = milliseconds(100)});
  grpc::Status status;
  std::thread caller([&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + seconds(30));
    v1::GetServerInfoResponse response;
    status = v1::AttentionService::NewStub(channel)->GetServerInfo(&context, {},
                                                                   &response);
  });
  port.TakeCaller();
  caller.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE)
      << status.error_message();
}

TEST(ChannelTest, RoundRobinCallsEachOfTheTargetsAddresses) {
  ScriptedService one({}, GoodReply());
  ScriptedService two({}, GoodReply());
  const Client client = *Client::Create(
      {.target = absl::StrCat("ipv4:", one.address(), ",", two.address()),
       .load_balancing = LoadBalancing::kRoundRobin});
  // The first calls may find one of them connected alone.
  const auto end = std::chrono::steady_clock::now() + seconds(30);
  while (one.requests().empty() || two.requests().empty()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    const absl::StatusOr<AttendResult> result = client.Attend(NumberRequest(1));
    ASSERT_TRUE(result.ok()) << result.status();
  }
}

}  // namespace
}  // namespace attention::client
