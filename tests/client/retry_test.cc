#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "attention_client/client.h"
#include "tests/client/held_server.h"
#include "tests/client/requests.h"
#include "tests/client/scripted_service.h"

namespace attention::client {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<grpc::Status> Times(int count, grpc::StatusCode code) {
  return std::vector<grpc::Status>(static_cast<size_t>(count),
                                   grpc::Status(code, "as told"));
}

TEST(RetryTest, UnavailableIsTriedAgainUntilItIsOver) {
  ScriptedService service(Times(3, grpc::StatusCode::UNAVAILABLE), GoodReply());
  const absl::StatusOr<AttendResult> result =
      QuickClient(service.address()).Attend(NumberRequest(1));
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(service.requests(), SizeIs(4));
}

TEST(RetryTest, AttemptsEndAtTheirNumber) {
  ScriptedService service(Times(9, grpc::StatusCode::UNAVAILABLE), GoodReply());
  const absl::Status status =
      QuickClient(service.address(), 3).Attend(NumberRequest(1)).status();
  EXPECT_EQ(status, absl::UnavailableError("as told"));
  EXPECT_THAT(service.requests(), SizeIs(3));
}

TEST(RetryTest, OneAttemptIsOneCall) {
  ScriptedService service(Times(1, grpc::StatusCode::UNAVAILABLE), GoodReply());
  EXPECT_FALSE(QuickClient(service.address(), 1).Attend(NumberRequest(1)).ok());
  EXPECT_THAT(service.requests(), SizeIs(1));
}

// gRPC by itself gives up on requests of more than 256 KiB.
TEST(RetryTest, ALargeRequestIsTriedAgainWhole) {
  ScriptedService service(Times(2, grpc::StatusCode::UNAVAILABLE), GoodReply());
  const AttendRequest request = LargeRequest(2 << 20);  // 32 MiB
  const absl::StatusOr<AttendResult> result =
      QuickClient(service.address()).Attend(request);
  EXPECT_TRUE(result.ok()) << result.status();
  const std::vector<v1::AttendRequest> arrived = service.requests();
  ASSERT_THAT(arrived, SizeIs(3));
  EXPECT_EQ(arrived[2].query().data().size(), 32U << 20);
}

TEST(RetryTest, NothingElseIsTriedAgain) {
  for (int code = 1; code <= 16; ++code) {
    if (code == grpc::StatusCode::UNAVAILABLE) continue;
    ScriptedService service(Times(1, static_cast<grpc::StatusCode>(code)),
                            GoodReply());
    const absl::Status status =
        QuickClient(service.address()).Attend(NumberRequest(1)).status();
    EXPECT_EQ(static_cast<int>(status.code()), code);
    EXPECT_EQ(status.message(), "as told");
    EXPECT_THAT(service.requests(), SizeIs(1)) << status;
  }
}

TEST(RetryTest, AStreamIsNotTriedAgain) {
  ScriptedService service(Times(1, grpc::StatusCode::UNAVAILABLE), GoodReply());
  const absl::Status status =
      QuickClient(service.address())
          .AttendMany({NumberRequest(1)}, [](size_t, const auto&) { FAIL(); });
  EXPECT_EQ(status, absl::UnavailableError("as told"));
  EXPECT_THAT(service.requests(), SizeIs(1));
}

TEST(RetryTest, AReplyThatDoesNotFitItsShapeIsInternal) {
  v1::AttendResponse reply = GoodReply();
  reply.mutable_output()->add_shape(3);
  ScriptedService service({}, reply);
  const absl::Status status =
      QuickClient(service.address()).Attend(NumberRequest(1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("output"));
}

TEST(RetryTest, AStreamReplyToNobodyIsInternal) {
  v1::AttendResponse reply = GoodReply();
  reply.set_id("somebody else");
  ScriptedService service({}, reply);
  const absl::Status status =
      QuickClient(service.address())
          .AttendMany(std::vector<AttendRequest>(50, LargeRequest(65'536)),
                      [](size_t, const auto&) { FAIL(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("somebody else"));
}

TEST(RetryTest, AStreamThatEndsEarlyIsInternal) {
  ScriptedService service({}, GoodReply(), /*hang_up=*/true);
  const absl::Status status =
      QuickClient(service.address())
          .AttendMany(std::vector<AttendRequest>(50, LargeRequest(65'536)),
                      [](size_t, const auto&) { FAIL(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("50 requests"));
}

// A loopback port that somebody listens on who hangs up on the first caller.
class RefusingPort {
 public:
  RefusingPort() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(socket_, generic, size), 0);
    EXPECT_EQ(listen(socket_, 1), 0);
    EXPECT_EQ(getsockname(socket_, generic, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  int port() const { return port_; }

  // Returns when the first caller was refused; the port is then free.
  void RefuseOne() {
    const int caller = accept(socket_, nullptr, nullptr);
    EXPECT_GE(caller, 0);
    // Closed with a reset, so that the port does not linger in TIME_WAIT.
    const linger reset{1, 0};
    setsockopt(caller, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(caller);
    close(socket_);
  }

 private:
  int socket_;
  int port_ = 0;
};

TEST(RetryTest, AServerThatStartsAfterTheFirstAttemptIsFound) {
  RefusingPort port;
  const Client client =
      *Client::Create({.target = absl::StrCat("127.0.0.1:", port.port()),
                       .max_attempts = 5,
                       .initial_backoff = std::chrono::milliseconds(500),
                       .max_backoff = std::chrono::milliseconds(8000)});
  absl::StatusOr<AttendResult> result = absl::UnknownError("not called");
  std::thread caller([&] { result = client.Attend(NumberRequest(3)); });
  port.RefuseOne();
  const auto server = StartServer(nullptr, port.port());
  caller.join();
  EXPECT_TRUE(result.ok()) << result.status();
}

}  // namespace
}  // namespace attention::client
