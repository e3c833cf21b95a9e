#include "server/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/service/http_caller.h"

namespace attention::server {
namespace {

using ::attention::test::HttpAnswer;
using ::attention::test::HttpBody;
using ::attention::test::HttpCaller;
using ::attention::test::HttpStatus;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kRequest[] = "GET /a HTTP/1.1\r\nHost: test\r\n\r\n";
// More than all buffers between a server and a caller take.
constexpr size_t kLarge = 64 << 20;

// Tells what was asked; "/large" gets kLarge bytes.
HttpReply Echo(const HttpRequest& request) {
  if (request.path == "/large") return {.body = std::string(kLarge, 'x')};
  return {.body = absl::StrCat(request.method, " ", request.path, "\n")};
}

class HttpServerTest : public testing::Test {
 protected:
  void Start(const HttpLimits& limits = {}) {
    auto listener = ListenOnTcp("127.0.0.1", 0);
    ASSERT_TRUE(listener.ok()) << listener.status();
    address_ = HostAndPort("127.0.0.1", listener->port);
    auto server = HttpServer::Start(*std::move(listener), limits, Echo);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // Within a minute.
  bool ConnectionsBecome(int64_t count) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (server_->connections() != count) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }

  std::string address_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersSeveralRequestsOfOneConnection) {
  Start();
  HttpCaller caller(address_);
  for (int i = 0; i < 3; ++i) {
    caller.Send(kRequest);
    EXPECT_THAT(caller.Read("GET /a\n"), StartsWith("HTTP/1.1 200 OK"));
  }
}

TEST_F(HttpServerTest, AnswersRequestsThatWereSentAhead) {
  Start();
  HttpCaller caller(address_);
  caller.Send(absl::StrCat(kRequest, kRequest));
  EXPECT_THAT(caller.Read("GET /a\n"), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(caller.Read("GET /a\n"), StartsWith("HTTP/1.1 200 OK"));
}

TEST_F(HttpServerTest, TheHandlerSeesThePathWithoutItsQuery) {
  Start();
  EXPECT_EQ(HttpBody(HttpAnswer(address_, "/b?c=d")), "GET /b\n");
}

TEST_F(HttpServerTest, HeadGetsTheHeadersAlone) {
  Start();
  const std::string answer = HttpAnswer(address_, "/a", "HEAD");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 7\r\n"));
  EXPECT_EQ(HttpBody(answer), "");
}

TEST_F(HttpServerTest, RefusesWhatIsNoHttp) {
  Start();
  HttpCaller caller(address_);
  caller.Send("\x16\x03\x01 nonsense\r\n\r\n");
  EXPECT_EQ(HttpStatus(caller.Read()), 400);
  EXPECT_TRUE(caller.closed());
}

TEST_F(HttpServerTest, RefusesHeadersBeyondTheirLimit) {
  Start();
  HttpCaller caller(address_);
  caller.Send(absl::StrCat("GET /a HTTP/1.1\r\nX: ", std::string(9000, 'x')));
  EXPECT_EQ(HttpStatus(caller.Read()), 431);
}

TEST_F(HttpServerTest, RefusesABodyBeyondItsLimitBeforeItComes) {
  Start();
  HttpCaller caller(address_);
  caller.Send("POST /a HTTP/1.1\r\nContent-Length: 1000000000000\r\n\r\n");
  EXPECT_EQ(HttpStatus(caller.Read()), 413);
}

TEST_F(HttpServerTest, ACallerThatSendsHalfARequestHoldsUpNobody) {
  Start();
  HttpCaller slow(address_);
  slow.Send("GET /a HT");
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a")), 200);
}

TEST_F(HttpServerTest, ACallerThatReadsNothingHoldsUpNobody) {
  Start();
  HttpCaller slow(address_);
  slow.Send("GET /large HTTP/1.1\r\n\r\n");
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a")), 200);
}

TEST_F(HttpServerTest, ACallerThatReadsNothingIsCutOff) {
  Start({.reply_time = milliseconds(50)});
  HttpCaller slow(address_);
  slow.Send("GET /large HTTP/1.1\r\n\r\n");
  ASSERT_THAT(slow.Read("\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(ConnectionsBecome(0));
}

TEST_F(HttpServerTest, ACallerThatSaysNothingIsCutOff) {
  Start({.request_time = milliseconds(50)});
  HttpCaller idle(address_);
  EXPECT_EQ(idle.Read(), "");
  EXPECT_TRUE(idle.closed());
}

TEST_F(HttpServerTest, OneConnectionTooManyIsClosedAtOnce) {
  Start({.connections = {2, 2}});
  HttpCaller first(address_);
  HttpCaller second(address_);
  ASSERT_TRUE(ConnectionsBecome(2));
  HttpCaller third(address_);
  EXPECT_EQ(third.Read(), "");
  EXPECT_TRUE(third.closed());
  EXPECT_EQ(server_->connections_refused(), 1);
}

TEST_F(HttpServerTest, OneAddressDoesNotTakeAllConnections) {
  Start({.connections = {100, 1}});
  HttpCaller first(address_);
  ASSERT_TRUE(ConnectionsBecome(1));
  HttpCaller second(address_);
  EXPECT_EQ(second.Read(), "");
  EXPECT_TRUE(second.closed());
}

TEST_F(HttpServerTest, AConnectionThatEndedMakesRoomForAnother) {
  Start({.connections = {1, 1}});
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a")), 200);
  ASSERT_TRUE(ConnectionsBecome(0));
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a")), 200);
}

TEST_F(HttpServerTest, EndsWhileCallersAreConnected) {
  Start();
  HttpCaller idle(address_);
  HttpCaller slow(address_);
  slow.Send("GET /large HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(ConnectionsBecome(2));
  server_.reset();
  EXPECT_EQ(idle.Read(), "");
  EXPECT_TRUE(idle.closed());
}

}  // namespace
}  // namespace attention::server
