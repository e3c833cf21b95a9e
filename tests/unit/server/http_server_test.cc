#include "server/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/service/http_caller.h"
#include "tests/support/certificates.h"

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

constexpr int64_t kMostBody = 1 << 20;

// Tells what was asked; "/large" gets kLarge bytes, "/body" its body.
HttpReply Echo(const HttpRequest& request) {
  if (request.path == "/body") {
    return {.body = static_cast<std::string>(request.body.view())};
  }
  if (request.path == "/large") return {.body = std::string(kLarge, 'x')};
  return {.body = absl::StrCat(request.method, " ", request.path, "\n")};
}

// How a caller speaks, and to which port.
enum class Speech : uint8_t { kPlain, kTls, kPlainWhereTlsIsTaken };

std::string NameOf(const testing::TestParamInfo<Speech>& speech) {
  if (speech.param == Speech::kPlain) return "Plain";
  return speech.param == Speech::kTls ? "Tls" : "PlainWhereTlsIsTaken";
}

class HttpServerTest : public testing::TestWithParam<Speech> {
 protected:
  HttpServerTest() : callers_tls_(::SSL_CTX_new(::TLS_client_method())) {
    if (GetParam() == Speech::kPlain) return;
    const test::CertificateAuthority authority("test authority");
    const test::CertificateAndKey server = authority.Sign("server.test");
    absl::StatusOr<TlsContext> made =
        MakeTlsContext({server.certificate, server.key, "", ""});
    EXPECT_TRUE(made.ok()) << made.status();
    servers_tls_ = [context = *std::move(made)] { return context; };
  }
  ~HttpServerTest() override { ::SSL_CTX_free(callers_tls_); }

  // What the callers speak; null: plain text.
  SSL_CTX* tls() const {
    return GetParam() == Speech::kTls ? callers_tls_ : nullptr;
  }
  void Start(const HttpLimits& limits = {}) {
    auto listener = ListenOnTcp("127.0.0.1", 0);
    ASSERT_TRUE(listener.ok()) << listener.status();
    address_ = HostAndPort("127.0.0.1", listener->port);
    HttpHandlers handlers;
    handlers.most_body_bytes = [](const HttpRequest&) { return kMostBody; };
    handlers.answer = [this](const std::shared_ptr<HttpExchange>& exchange) {
      Answer(exchange);
    };
    auto server =
        HttpServer::Start(*std::move(listener), limits, handlers, servers_tls_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // "/held" is answered by nobody, and its exchange is kept.
  void Answer(const std::shared_ptr<HttpExchange>& exchange) {
    if (exchange->request().path == "/held") {
      const std::lock_guard lock(mutex_);
      held_ = exchange;
      return held_changed_.notify_all();
    }
    exchange->Reply(Echo(exchange->request()));
  }
  std::shared_ptr<HttpExchange> WaitUntilHeld() {
    std::unique_lock lock(mutex_);
    held_changed_.wait_for(lock, std::chrono::minutes(1),
                           [this] { return held_ != nullptr; });
    return std::exchange(held_, nullptr);
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

  SSL_CTX* const callers_tls_;
  std::function<TlsContext()> servers_tls_;
  std::string address_;
  std::mutex mutex_;
  std::condition_variable held_changed_;
  std::shared_ptr<HttpExchange> held_;
  std::unique_ptr<HttpServer> server_;
};

TEST_P(HttpServerTest, AnswersSeveralRequestsOfOneConnection) {
  Start();
  HttpCaller caller(address_, tls());
  for (int i = 0; i < 3; ++i) {
    caller.Send(kRequest);
    EXPECT_THAT(caller.Read("GET /a\n"), StartsWith("HTTP/1.1 200 OK"));
  }
}

TEST_P(HttpServerTest, AnswersRequestsThatWereSentAhead) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send(absl::StrCat(kRequest, kRequest));
  EXPECT_THAT(caller.Read("GET /a\n"), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(caller.Read("GET /a\n"), StartsWith("HTTP/1.1 200 OK"));
}

TEST_P(HttpServerTest, TheHandlerSeesThePathWithoutItsQuery) {
  Start();
  EXPECT_EQ(HttpBody(HttpAnswer(address_, "/b?c=d", "GET", tls())), "GET /b\n");
}

TEST_P(HttpServerTest, HeadGetsTheHeadersAlone) {
  Start();
  const std::string answer = HttpAnswer(address_, "/a", "HEAD", tls());
  EXPECT_THAT(answer, HasSubstr("Content-Length: 7\r\n"));
  EXPECT_EQ(HttpBody(answer), "");
}

TEST_P(HttpServerTest, RefusesWhatIsNoHttp) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send("\x16\x03\x01 nonsense\r\n\r\n");
  EXPECT_EQ(HttpStatus(caller.Read()), 400);
  EXPECT_TRUE(caller.closed());
}

TEST_P(HttpServerTest, RefusesHeadersBeyondTheirLimit) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send(absl::StrCat("GET /a HTTP/1.1\r\nX: ", std::string(9000, 'x')));
  EXPECT_EQ(HttpStatus(caller.Read()), 431);
}

TEST_P(HttpServerTest, RefusesABodyBeyondItsLimitBeforeItComes) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send("POST /a HTTP/1.1\r\nContent-Length: 1000000000000\r\n\r\n");
  EXPECT_EQ(HttpStatus(caller.Read()), 413);
}

TEST_P(HttpServerTest, TakesABodyInChunks) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send(
      "POST /body HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(HttpStatus(caller.Read("abcde")), 200);
}

TEST_P(HttpServerTest, TakesALargeBodyWhole) {
  Start();
  std::string body(kMostBody, 'x');
  body.front() = 'a';
  body.back() = 'z';
  HttpCaller caller(address_, tls());
  caller.Send(
      absl::StrCat("POST /body HTTP/1.1\r\nConnection: close\r\n"
                   "Content-Length: ",
                   body.size(), "\r\n\r\n", body));
  EXPECT_TRUE(HttpBody(caller.Read()) == body);
}

TEST_P(HttpServerTest, RefusesABodyInChunksAtItsLimit) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send("POST /body HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk =
      absl::StrCat("10000\r\n", std::string(0x10000, 'x'), "\r\n");
  for (int i = 0; i < kMostBody / 0x10000; ++i) caller.Send(chunk);
  caller.Send("1\r\nx\r\n");
  EXPECT_EQ(HttpStatus(caller.Read("\r\n\r\n")), 413);
}

TEST_P(HttpServerTest, AsksForABodyThatIsHeldBack) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send(
      "POST /body HTTP/1.1\r\nExpect: 100-continue\r\n"
      "Content-Length: 4\r\n\r\n");
  EXPECT_EQ(caller.Read("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  caller.Send("body");
  EXPECT_EQ(HttpStatus(caller.Read("body")), 200);
}

TEST_P(HttpServerTest, RefusesABodyThatIsHeldBackAndTooLarge) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send(
      "POST /body HTTP/1.1\r\nExpect: 100-continue\r\n"
      "Content-Length: 4294967296\r\n\r\n");
  EXPECT_EQ(HttpStatus(caller.Read("\r\n\r\n")), 413);
}

TEST_P(HttpServerTest, BodiesOfOneAddressTakeHalfOfTheMemory) {
  HttpLimits limits;
  limits.bodies = std::make_shared<ByteBudget>(1 << 20);
  Start(limits);
  HttpCaller first(address_, tls());
  const std::string most(400 << 10, 'x');
  first.Send(absl::StrCat("POST /body HTTP/1.1\r\nContent-Length: ", 500 << 10,
                          "\r\n\r\n", most));
  while (limits.bodies->taken() < 400 << 10) std::this_thread::yield();
  HttpCaller second(address_, tls());
  second.Send(absl::StrCat("POST /body HTTP/1.1\r\nContent-Length: ", 400 << 10,
                           "\r\n\r\n", most));
  EXPECT_EQ(HttpStatus(second.Read("\r\n\r\n")), 429);
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a", "GET", tls())), 200);
}

TEST_P(HttpServerTest, ABodyThatDoesNotComeIsGivenUp) {
  HttpLimits limits;
  limits.request_time = milliseconds(50);
  limits.bodies = std::make_shared<ByteBudget>(1 << 20);
  Start(limits);
  HttpCaller slow(address_, tls());
  slow.Send("POST /body HTTP/1.1\r\nContent-Length: 100\r\n\r\nxx");
  EXPECT_EQ(slow.Read(), "");
  EXPECT_TRUE(slow.closed());
  ASSERT_TRUE(ConnectionsBecome(0));
  EXPECT_EQ(limits.bodies->taken(), 0);
}

TEST_P(HttpServerTest, AReplyMayComeLaterAndFromAnotherThread) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send("GET /held HTTP/1.1\r\n\r\n");
  const auto exchange = WaitUntilHeld();
  ASSERT_NE(exchange, nullptr);
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a", "GET", tls())), 200);
  exchange->Reply({.body = "later"});
  EXPECT_EQ(HttpStatus(caller.Read("later")), 200);
  caller.Send(kRequest);
  EXPECT_EQ(HttpStatus(caller.Read("GET /a\n")), 200);
}

TEST_P(HttpServerTest, WhoWaitsForAReplyIsToldThatTheCallerHasGone) {
  Start();
  auto caller = std::make_unique<HttpCaller>(address_, tls());
  caller->Send("GET /held HTTP/1.1\r\n\r\n");
  const auto exchange = WaitUntilHeld();
  ASSERT_NE(exchange, nullptr);
  std::promise<void> gone;
  exchange->OnGone([&gone] { gone.set_value(); });
  caller.reset();
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::minutes(1)),
            std::future_status::ready);
  exchange->Reply({});
  EXPECT_TRUE(ConnectionsBecome(0));
}

TEST_P(HttpServerTest, WhatAReplyHoldsIsLetGoOnceItIsOut) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send("GET /held HTTP/1.1\r\n\r\n");
  const auto exchange = WaitUntilHeld();
  ASSERT_NE(exchange, nullptr);
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> left = held;
  exchange->Reply({.body = "later", .held = std::move(held)});
  caller.Read("later");
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!left.expired() && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_TRUE(left.expired());
}

TEST_P(HttpServerTest, ACallerThatSendsHalfARequestHoldsUpNobody) {
  Start();
  HttpCaller slow(address_, tls());
  slow.Send("GET /a HT");
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a", "GET", tls())), 200);
}

TEST_P(HttpServerTest, ACallerThatReadsNothingHoldsUpNobody) {
  Start();
  HttpCaller slow(address_, tls());
  slow.Send("GET /large HTTP/1.1\r\n\r\n");
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a", "GET", tls())), 200);
}

TEST_P(HttpServerTest, ACallerThatReadsNothingIsCutOff) {
  Start({.reply_time = milliseconds(50)});
  HttpCaller slow(address_, tls());
  slow.Send("GET /large HTTP/1.1\r\n\r\n");
  ASSERT_THAT(slow.Read("\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(ConnectionsBecome(0));
}

TEST_P(HttpServerTest, ACallerThatSaysNothingIsCutOff) {
  Start({.handshake_time = milliseconds(50), .request_time = milliseconds(50)});
  HttpCaller idle(address_, tls());
  EXPECT_EQ(idle.Read(), "");
  EXPECT_TRUE(idle.closed());
}

TEST_P(HttpServerTest, OneConnectionTooManyIsClosedAtOnce) {
  Start({.connections = {2, 2}});
  HttpCaller first(address_, tls());
  HttpCaller second(address_, tls());
  ASSERT_TRUE(ConnectionsBecome(2));
  HttpCaller third(address_, tls());
  EXPECT_EQ(third.Read(), "");
  EXPECT_TRUE(third.closed());
  EXPECT_EQ(server_->connections_refused(), 1);
}

TEST_P(HttpServerTest, OneAddressDoesNotTakeAllConnections) {
  Start({.connections = {100, 1}});
  HttpCaller first(address_, tls());
  ASSERT_TRUE(ConnectionsBecome(1));
  HttpCaller second(address_, tls());
  EXPECT_EQ(second.Read(), "");
  EXPECT_TRUE(second.closed());
}

TEST_P(HttpServerTest, AConnectionThatEndedMakesRoomForAnother) {
  Start({.connections = {1, 1}});
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a", "GET", tls())), 200);
  ASSERT_TRUE(ConnectionsBecome(0));
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a", "GET", tls())), 200);
}

TEST_P(HttpServerTest, EndsWhileCallersAreConnected) {
  Start();
  HttpCaller idle(address_, tls());
  HttpCaller slow(address_, tls());
  slow.Send("GET /large HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(ConnectionsBecome(2));
  server_.reset();
  EXPECT_EQ(idle.Read(), "");
  EXPECT_TRUE(idle.closed());
}

INSTANTIATE_TEST_SUITE_P(Speeches, HttpServerTest,
                         testing::Values(Speech::kPlain, Speech::kTls,
                                         Speech::kPlainWhereTlsIsTaken),
                         &NameOf);

class HttpsServerTest : public HttpServerTest {};

TEST_P(HttpsServerTest, SaysThatItHasEnded) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send("GET /a HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(HttpBody(caller.Read()), "GET /a\n");
  EXPECT_TRUE(caller.told_of_end());
}

TEST_P(HttpsServerTest, ARefusalArrivesWhileTheCallerSends) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send(absl::StrCat("POST /a HTTP/1.1\r\nContent-Length: ", kLarge,
                           "\r\n\r\n", std::string(8 << 20, 'x')));
  EXPECT_EQ(HttpStatus(caller.Read("\r\n\r\n")), 413);
}

TEST_P(HttpsServerTest, HalfAHandshakeHoldsUpNobody) {
  Start();
  HttpCaller half(address_);
  half.Send(absl::string_view("\x16\x03\x01\x02\x00\x01", 6));
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a", "GET", tls())), 200);
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a")), 200);
}

TEST_P(HttpsServerTest, HalfAHandshakeIsCutOff) {
  Start({.handshake_time = milliseconds(50)});
  // Before it is known to be one, and after.
  for (const size_t size : {0, 6, 40}) {
    HttpCaller half(address_);
    std::string hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
    hello.resize(40);
    half.Send(hello.substr(0, size));
    EXPECT_EQ(half.Read(), "") << size;
    EXPECT_TRUE(half.closed()) << size;
  }
  EXPECT_TRUE(ConnectionsBecome(0));
}

TEST_P(HttpsServerTest, WhatIsNoHandshakeIsRefused) {
  Start();
  HttpCaller caller(address_);
  std::string hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  hello.resize(5 + 512, 'x');
  caller.Send(hello);
  caller.Read();
  EXPECT_TRUE(caller.closed());
  EXPECT_TRUE(ConnectionsBecome(0));
}

INSTANTIATE_TEST_SUITE_P(Tls, HttpsServerTest, testing::Values(Speech::kTls),
                         &NameOf);

}  // namespace
}  // namespace attention::server
