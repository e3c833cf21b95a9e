#include "server/http/port/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/service/http_caller.h"
#include "tests/unit/server/http_server_fixture.h"

namespace attention::server {
namespace {

using ::attention::test::HttpAnswer;
using ::attention::test::HttpBody;
using ::attention::test::HttpCaller;
using ::attention::test::HttpStatus;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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

TEST_P(HttpServerTest, AReplySaysWhenItWasMade) {
  Start();
  const absl::Time before = absl::Now() - absl::Seconds(1);  // none has parts
  for (const char* method : {"GET", "NONSENSE"}) {
    const std::string answer = HttpAnswer(address_, "/a", method, tls());
    const std::string name = "\r\nDate: ";
    const size_t date = answer.find(name);
    ASSERT_NE(date, std::string::npos) << answer;
    absl::Time made;
    EXPECT_TRUE(absl::ParseTime(
        "%a, %d %b %Y %H:%M:%S GMT",
        answer.substr(date + name.size(),
                      sizeof("Sun, 06 Nov 1994 08:49:37 GMT") - 1),
        &made, nullptr))
        << answer;
    EXPECT_GT(made, before);
    EXPECT_LE(made, absl::Now());
  }
}

TEST_P(HttpServerTest, ATraceComesBackWithEveryReply) {
  Start();
  const std::string trace =
      "traceparent: "
      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
  const std::string host = "Host: 127.0.0.1\r\n";
  HttpCaller caller(address_, tls());
  caller.Send(absl::StrCat("GET /a HTTP/1.1\r\n", host, trace, "\r\n"));
  EXPECT_THAT(caller.Read("GET /a\n"), HasSubstr(trace));
  caller.Send(kRequest);
  EXPECT_THAT(caller.Read("GET /a\n"), Not(HasSubstr("traceparent")));
  caller.Send(absl::StrCat("POST /a HTTP/1.1\r\n", host, trace,
                           "Content-Length: 1000000000000\r\n\r\n"));
  const std::string refused = caller.Read();
  EXPECT_EQ(HttpStatus(refused), 413);
  EXPECT_THAT(refused, HasSubstr(trace));
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
  caller.Send(absl::StrCat("GET /a HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
                           std::string(9000, 'x')));
  EXPECT_EQ(HttpStatus(caller.Read()), 431);
}

TEST_P(HttpServerTest, RefusesABodyBeyondItsLimitBeforeItComes) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send(
      "POST /a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: "
      "1000000000000\r\n\r\n");
  EXPECT_EQ(HttpStatus(caller.Read()), 413);
}

TEST_P(HttpServerTest, TakesABodyInChunks) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send(
      "POST /body HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: "
      "chunked\r\n\r\n"
      "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(HttpStatus(caller.Read("abcde")), 200);
}

TEST_P(HttpServerTest, TakesALargeBodyWhole) {
  Start();
  std::string body(kMostBody, 'x');
  body.front() = 'a';
  body.back() = 'z';
  HttpCaller caller(address_, tls());
  caller.Send(absl::StrCat(
      "POST /body HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
      "Content-Length: ",
      body.size(), "\r\n\r\n", body));
  EXPECT_TRUE(HttpBody(caller.Read()) == body);
}

TEST_P(HttpServerTest, RefusesABodyInChunksAtItsLimit) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send(
      "POST /body HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: "
      "chunked\r\n\r\n");
  const std::string chunk =
      absl::StrCat("10000\r\n", std::string(0x10000, 'x'), "\r\n");
  for (int i = 0; i < kMostBody / 0x10000; ++i) caller.Send(chunk);
  caller.Send("1\r\nx\r\n");
  EXPECT_EQ(HttpStatus(caller.Read("\r\n\r\n")), 413);
}

// What comes to a body of `size` bytes, in one chunk.
std::string AnswerToChunk(HttpCaller caller, size_t size) {
  caller.Send(absl::StrCat(
      "POST /body HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
      "Transfer-Encoding: chunked\r\n\r\n",
      absl::Hex(size), "\r\n", std::string(size, 'x'), "\r\n0\r\n\r\n"));
  return caller.Read();
}

// What is taken for it grows in steps.
TEST_P(HttpServerTest, ABodyInChunksMayTakeAllThatIsLeftToOne) {
  HttpLimits limits;
  limits.bodies =
      std::make_shared<const ByteBudget>(ByteBudget{limits.ledger, 1000 << 10});
  Start(limits);
  const auto most = static_cast<size_t>(limits.bodies->limit_of_one());
  const auto answer = [this](size_t size) {
    return AnswerToChunk(HttpCaller(address_, tls()), size);
  };
  for (const size_t size : {most * 11 / 20, most - 1, most}) {
    EXPECT_EQ(HttpStatus(answer(size)), 200) << size;
  }
  const std::string refused = answer(most + 1);
  EXPECT_EQ(HttpStatus(refused), 413);
  EXPECT_THAT(refused, Not(HasSubstr("Retry-After")));
}

TEST_P(HttpServerTest, AsksForABodyThatIsHeldBack) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send(
      "POST /body HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\n"
      "Content-Length: 4\r\n\r\n");
  EXPECT_EQ(caller.Read("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  caller.Send("body");
  EXPECT_EQ(HttpStatus(caller.Read("body")), 200);
}

TEST_P(HttpServerTest, ARequestBeginsWithItsHead) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send(
      "POST /held HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\n"
      "Content-Length: 4\r\n\r\n");
  ASSERT_EQ(HttpStatus(caller.Read("\r\n\r\n")), 100);
  const auto before_the_body = std::chrono::system_clock::now();
  caller.Send("body");
  const auto exchange = WaitUntilHeld();
  ASSERT_NE(exchange, nullptr);
  EXPECT_LE(exchange->request().begin, before_the_body);
  exchange->Reply({});
}

TEST_P(HttpServerTest, RefusesABodyThatIsHeldBackAndTooLarge) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send(
      "POST /body HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\n"
      "Content-Length: 4294967296\r\n\r\n");
  EXPECT_EQ(HttpStatus(caller.Read("\r\n\r\n")), 413);
}

// Sends `sent` bytes of a body of `size`.
void SendPartOfABody(HttpCaller& caller, size_t size, size_t sent) {
  caller.Send(absl::StrCat("POST /body HTTP/1.1\r\nHost: test\r\n",
                           "Content-Length: ", size, "\r\n\r\n",
                           std::string(sent, 'x')));
}

// Its last step, which would double it, takes what is needed.
TEST_P(HttpServerTest, ABodyInChunksMayTakeWhatAnUnfinishedOneLeaves) {
  HttpLimits limits;
  limits.bodies =
      std::make_shared<const ByteBudget>(ByteBudget{limits.ledger, 1000 << 10});
  Start(limits);
  HttpCaller unfinished(address_, tls());
  SendPartOfABody(unfinished, 2, 1);
  while (limits.ledger->Of(Kept::kBodies).amount == 0) {
    std::this_thread::yield();
  }
  const auto most = static_cast<size_t>(limits.bodies->limit_of_one());
  EXPECT_EQ(
      HttpStatus(AnswerToChunk(HttpCaller(address_, tls()), most * 11 / 20)),
      200);
}

TEST(CountedBytesTest, TellWhoseRoomIsUsedUp) {
  const auto budget = std::make_shared<const ByteBudget>(
      ByteBudget{std::make_shared<Ledger>(), 1 << 20});
  std::vector<CountedBytes> kept;
  const auto grow = [&](const char* address, size_t bytes) {
    Refusal refusal = Refusal::kNone;
    const absl::Status grown =
        kept.emplace_back(budget, address).Grow(bytes, bytes, &refusal);
    EXPECT_EQ(grown.ok(), refusal == Refusal::kNone);
    return refusal;
  };
  EXPECT_EQ(grow("a", 512 << 10), Refusal::kNone);
  EXPECT_EQ(grow("a", 400 << 10), Refusal::kCallerMemory);
  EXPECT_EQ(grow("b", 400 << 10), Refusal::kNone);
  EXPECT_EQ(grow("c", 200 << 10), Refusal::kServerMemory);
}

TEST_P(HttpServerTest, AnUnfinishedBodyLeavesRoomForOthersOfItsAddress) {
  HttpLimits limits;
  limits.bodies =
      std::make_shared<const ByteBudget>(ByteBudget{limits.ledger, 1 << 20});
  Start(limits);
  HttpCaller first(address_, tls());
  SendPartOfABody(first, 500 << 10, 400 << 10);
  while (limits.ledger->Of(Kept::kBodies).amount < 400 << 10) {
    std::this_thread::yield();
  }
  HttpCaller second(address_, tls());
  SendPartOfABody(second, 100 << 10, 100 << 10);
  EXPECT_EQ(HttpStatus(second.Read("\r\n\r\n")), 200);
  HttpCaller third(address_, tls());
  SendPartOfABody(third, 400 << 10, 400 << 10);
  EXPECT_EQ(HttpStatus(third.Read("\r\n\r\n")), 429);
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a", "GET", tls())), 200);
}

TEST_P(HttpServerTest, ABodyThatDoesNotComeIsGivenUp) {
  HttpLimits limits;
  limits.body_pause = milliseconds(50);
  limits.bodies =
      std::make_shared<const ByteBudget>(ByteBudget{limits.ledger, 1 << 20});
  Start(limits);
  HttpCaller slow(address_, tls());
  SendPartOfABody(slow, 100, 2);
  EXPECT_EQ(slow.Read(), "");
  EXPECT_TRUE(slow.closed());
  ASSERT_TRUE(ConnectionsBecome(0));
  EXPECT_EQ(limits.ledger->Of(Kept::kBodies).amount, 0);
}

TEST_P(HttpServerTest, AReplyMayComeLaterAndFromAnotherThread) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send("GET /held HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  const auto exchange = WaitUntilHeld();
  ASSERT_NE(exchange, nullptr);
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a", "GET", tls())), 200);
  exchange->Reply({.body = "later"});
  EXPECT_EQ(HttpStatus(caller.Read("later")), 200);
  caller.Send(kRequest);
  EXPECT_EQ(HttpStatus(caller.Read("GET /a\n")), 200);
}

TEST_P(HttpServerTest, WhatIsSentWhileAReplyIsWaitedForIsAnsweredAfterIt) {
  Start();
  HttpCaller caller(address_, tls());
  const std::string held = "GET /held HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
  caller.Send(held);
  auto exchange = WaitUntilHeld();
  ASSERT_NE(exchange, nullptr);
  caller.Send(absl::StrCat(kRequest, held, "GET /b"));
  exchange->Reply({.body = "first"});
  EXPECT_EQ(HttpStatus(caller.Read("first")), 200);
  EXPECT_EQ(HttpStatus(caller.Read("GET /a\n")), 200);
  exchange = WaitUntilHeld();
  ASSERT_NE(exchange, nullptr);
  exchange->Reply({.body = "second"});
  EXPECT_EQ(HttpStatus(caller.Read("second")), 200);
  caller.Send(" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  EXPECT_EQ(HttpStatus(caller.Read("GET /b\n")), 200);
}

TEST_P(HttpServerTest, ALargeBodyMayFollowARequestThatIsHeld) {
  Start();
  HttpCaller caller(address_, tls());
  const std::string body(kMostBody, 'x');
  std::thread sends([&] {
    caller.Send(absl::StrCat("GET /held HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
                             "POST /body HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                             "Connection: close\r\nContent-Length: ",
                             body.size(), "\r\n\r\n", body));
  });
  const auto exchange = WaitUntilHeld();
  if (exchange != nullptr) exchange->Reply({.body = "first"});
  sends.join();
  EXPECT_EQ(HttpStatus(caller.Read("first")), 200);
  EXPECT_TRUE(HttpBody(caller.Read()) == body);
}

TEST_P(HttpServerTest, WhatAReplyHoldsIsLetGoOnceItIsOut) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send("GET /held HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
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
  slow.Send("GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a", "GET", tls())), 200);
}

INSTANTIATE_TEST_SUITE_P(Speeches, HttpServerTest,
                         testing::Values(Speech::kPlain, Speech::kTls,
                                         Speech::kPlainWhereTlsIsTaken),
                         &NameOfSpeech);

}  // namespace
}  // namespace attention::server
