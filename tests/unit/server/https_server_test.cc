// What is HTTPS's own; tests of both are in http_server_test.cc.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/http/port/http_greeting.h"
#include "tests/service/http_caller.h"
#include "tests/unit/server/http_server_fixture.h"

namespace attention::server {
namespace {

using ::attention::test::HttpAnswer;
using ::attention::test::HttpBody;
using ::attention::test::HttpCaller;
using ::attention::test::HttpStatus;
using std::chrono::milliseconds;

class HttpsServerTest : public HttpServerTest {};

TEST_P(HttpsServerTest, SaysThatItHasEnded) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send(
      "GET /a HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(HttpBody(caller.Read()), "GET /a\n");
  EXPECT_TRUE(caller.told_of_end());
}

TEST_P(HttpsServerTest, ARefusalArrivesWhileTheCallerSends) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send(absl::StrCat(
      "POST /a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ", kLarge,
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

TEST_P(HttpsServerTest, OfAnAddressWithTooManyThatWaitNoneBegins) {
  HttpLimits limits;
  std::vector<Ledger::Hold> waiting(HttpGreeting::kMostWaiting);
  for (Ledger::Hold& one : waiting) {
    one = limits.ledger->Take(Kept::kHandshakes, {.address = "127.0.0.1"});
  }
  Start(limits);
  HttpCaller caller(address_);
  std::string hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  caller.Send(hello);
  EXPECT_EQ(caller.Read(), "");
  EXPECT_TRUE(caller.closed());
  waiting.pop_back();
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a", "GET", tls())), 200);
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
                         &NameOfSpeech);

}  // namespace
}  // namespace attention::server
