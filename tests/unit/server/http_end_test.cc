// How connections end.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/service/http_caller.h"
#include "tests/unit/server/http_server_fixture.h"

namespace attention::server {
namespace {

using ::attention::test::HttpAnswer;
using ::attention::test::HttpCaller;
using ::attention::test::HttpStatus;
using std::chrono::milliseconds;
using ::testing::StartsWith;

constexpr char kHeld[] = "GET /held HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

class HttpEndTest : public HttpServerTest {
 protected:
  // Whether who holds it is told of its end within a minute.
  static bool IsToldOfEnd(HttpExchange& exchange) {
    const auto gone = std::make_shared<std::promise<void>>();
    exchange.OnGone([gone] { gone->set_value(); });
    return gone->get_future().wait_for(std::chrono::minutes(1)) ==
           std::future_status::ready;
  }
  // A caller sends a request that is held, and `more`, and closes: who holds it
  // is told.
  void ExpectEndIsTold(const char* more) {
    auto caller = std::make_unique<test::HttpCaller>(address_, tls());
    caller->Send(absl::StrCat(kHeld, more));
    const auto exchange = WaitUntilHeld();
    ASSERT_NE(exchange, nullptr);
    caller.reset();
    EXPECT_TRUE(IsToldOfEnd(*exchange));
    exchange->Reply({});
    EXPECT_TRUE(ConnectionsBecome(0));
  }
};

TEST_P(HttpEndTest, WhoWaitsForAReplyIsToldThatTheCallerHasGone) {
  Start();
  ExpectEndIsTold("");
}

TEST_P(HttpEndTest, WhatFollowsARequestHidesNoEnd) {
  Start();
  for (const char* more : {"\r\n", kRequest}) ExpectEndIsTold(more);
}

TEST_P(HttpEndTest, WhoSendsNothingMoreIsClosedAfterItsReply) {
  Start({.request_time = std::chrono::hours(1)});
  HttpCaller caller(address_, tls());
  caller.Send(kHeld);
  const auto exchange = WaitUntilHeld();
  ASSERT_NE(exchange, nullptr);
  caller.EndSending();
  ASSERT_TRUE(IsToldOfEnd(*exchange));
  exchange->Reply({.body = "reply"});
  EXPECT_EQ(HttpStatus(caller.Read("reply")), 200);
  EXPECT_EQ(caller.Read(), "");
  EXPECT_TRUE(caller.closed());
}

TEST_P(HttpEndTest, TheEndIsToldOfARequestThatWasSentAhead) {
  Start({.request_time = std::chrono::hours(1)});
  HttpCaller caller(address_, tls());
  caller.Send(absl::StrCat(kHeld, kHeld));
  const auto first = WaitUntilHeld();
  ASSERT_NE(first, nullptr);
  caller.EndSending();
  ASSERT_TRUE(IsToldOfEnd(*first));
  first->Reply({.body = "first"});
  EXPECT_EQ(HttpStatus(caller.Read("first")), 200);
  const auto second = WaitUntilHeld();
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(IsToldOfEnd(*second));
  second->Reply({.body = "second"});
  EXPECT_EQ(HttpStatus(caller.Read("second")), 200);
  EXPECT_EQ(caller.Read(), "");
  EXPECT_TRUE(caller.closed());
}

TEST_P(HttpEndTest, WhatCannotBeAnsweredForWantOfMemoryIsClosed) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send("GET /without-memory HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  EXPECT_EQ(caller.Read(), "");
  EXPECT_TRUE(caller.closed());
  EXPECT_TRUE(ConnectionsBecome(0));
}

TEST_P(HttpEndTest, WhatNobodyAnswersAnyMoreEndsWithItsCaller) {
  Start();
  auto caller = std::make_unique<HttpCaller>(address_, tls());
  caller->Send("GET /dropped HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  ASSERT_TRUE(ConnectionsBecome(1));
  caller.reset();
  EXPECT_TRUE(ConnectionsBecome(0));
}

TEST_P(HttpEndTest, ACallerThatReadsNothingIsCutOff) {
  Start({.reply_time = milliseconds(50)});
  HttpCaller slow(address_, tls());
  slow.Send("GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  ASSERT_THAT(slow.Read("\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(ConnectionsBecome(0));
}

TEST_P(HttpEndTest, ACallerThatSaysNothingIsCutOff) {
  Start({.handshake_time = milliseconds(50), .request_time = milliseconds(50)});
  HttpCaller idle(address_, tls());
  EXPECT_EQ(idle.Read(), "");
  EXPECT_TRUE(idle.closed());
}

TEST_P(HttpEndTest, AConnectionThatEndedMakesRoomForAnother) {
  Start({.connections = {1, 1}});
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a", "GET", tls())), 200);
  ASSERT_TRUE(ConnectionsBecome(0));
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a", "GET", tls())), 200);
}

TEST_P(HttpEndTest, EndsWhileCallersAreConnected) {
  Start();
  HttpCaller idle(address_, tls());
  HttpCaller slow(address_, tls());
  slow.Send("GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  ASSERT_TRUE(ConnectionsBecome(2));
  server_.reset();
  EXPECT_EQ(idle.Read(), "");
  EXPECT_TRUE(idle.closed());
}

INSTANTIATE_TEST_SUITE_P(Speeches, HttpEndTest,
                         testing::Values(Speech::kPlain, Speech::kTls,
                                         Speech::kPlainWhereTlsIsTaken),
                         &NameOfSpeech);

}  // namespace
}  // namespace attention::server
