#include "server/http/port/http_connections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/service/http_caller.h"
#include "tests/unit/server/http_server_fixture.h"

namespace attention::server {
namespace {

using ::attention::test::HttpAnswer;
using ::attention::test::HttpCaller;
using ::attention::test::HttpStatus;

TEST(HttpConnectionsTest, TheLongestIdleMakesRoom) {
  Ledger ledger;
  HttpConnections connections(ledger, {2, 2}, /*reserved=*/0);
  std::string closed;
  const auto first = connections.Take("a");
  const auto second = connections.Take("a");
  first->SetIdle([&] { closed += "first "; });
  second->SetIdle([&] { closed += "second "; });
  first->SetIdle([&] { closed += "first "; });  // after another request
  const auto third = connections.Take("a");
  EXPECT_NE(third, nullptr);
  EXPECT_EQ(closed, "second ");
  EXPECT_EQ(connections.open(), 2);
  EXPECT_EQ(connections.displaced(), 1);
}

TEST(HttpConnectionsTest, AnAddressWithItsShareMakesRoomOfItsOwn) {
  Ledger ledger;
  HttpConnections connections(ledger, {10, 1}, /*reserved=*/0);
  bool other_closed = false;
  bool own_closed = false;
  const auto other = connections.Take("b");
  other->SetIdle([&] { other_closed = true; });
  const auto own = connections.Take("a");
  own->SetIdle([&] { own_closed = true; });
  EXPECT_NE(connections.Take("a"), nullptr);
  EXPECT_TRUE(own_closed);
  EXPECT_FALSE(other_closed);
}

TEST(HttpConnectionsTest, BusyOnesStayAndProbesHavePlaces) {
  Ledger ledger;
  HttpConnections connections(ledger, {1, 1}, /*reserved=*/1);
  const auto busy = connections.Take("a");
  busy->SetIdle([] { FAIL() << "it is busy"; });
  busy->SetBusy();
  auto probe = connections.Take("a");
  ASSERT_NE(probe, nullptr);
  EXPECT_TRUE(probe->reserved());
  EXPECT_EQ(connections.Take("b"), nullptr);
  EXPECT_EQ(connections.refused(), 1);
  probe = nullptr;
  EXPECT_NE(connections.Take("b"), nullptr);
}

TEST(HttpConnectionsTest, AnIdleConnectionThatWasClosedIsNotCountedTwice) {
  Ledger ledger;
  HttpConnections connections(ledger, {1, 1}, /*reserved=*/0);
  auto first = connections.Take("a");
  first->SetIdle([] {});
  const auto second = connections.Take("a");
  first->SetIdle([] { FAIL() << "it was closed already"; });
  first = nullptr;
  EXPECT_EQ(connections.open(), 1);
  EXPECT_EQ(connections.Take("a"), nullptr);
}

TEST(HttpConnectionsTest, WhatWasClosedAndIsStillThereIsBounded) {
  Ledger ledger;
  HttpConnections connections(ledger, {1000, 1}, /*reserved=*/0);
  std::vector<std::unique_ptr<HttpConnections::Place>> places;
  const auto take = [&connections, &places] {
    auto place = connections.Take("a");
    if (place == nullptr) return false;
    place->SetIdle([] {});
    places.push_back(std::move(place));
    return true;
  };
  while (places.size() < 1000 && take()) {
  }
  EXPECT_EQ(places.size(), 1 + HttpConnections::kMostClosing);
  EXPECT_NE(connections.Take("b"), nullptr);
  places.erase(places.begin());
  EXPECT_TRUE(take());
  EXPECT_FALSE(take());
}

TEST(HttpConnectionsTest, WhileDrainingBusyOnesAreWaitedFor) {
  Ledger ledger;
  HttpConnections connections(ledger, {2, 2}, /*reserved=*/0);
  const auto now = std::chrono::steady_clock::now();
  auto idle = connections.Take("a");
  idle->SetIdle([] {});
  auto busy = connections.Take("a");
  EXPECT_TRUE(busy->MayStay());
  connections.StartDraining();
  EXPECT_FALSE(busy->MayStay());
  EXPECT_FALSE(connections.WaitUntilIdle(now));
  busy->SetIdle([] {});
  EXPECT_TRUE(connections.WaitUntilIdle(now));
  EXPECT_FALSE(connections.WaitUntilNone(now));
  busy->SetBusy();
  busy = nullptr;
  EXPECT_TRUE(connections.WaitUntilIdle(now));
  idle = nullptr;
  EXPECT_TRUE(connections.WaitUntilNone(now));
}

TEST(HttpConnectionsTest, OnesThatWereClosedForOthersAreNotWaitedFor) {
  Ledger ledger;
  HttpConnections connections(ledger, {1, 1}, /*reserved=*/0);
  const auto now = std::chrono::steady_clock::now();
  const auto closed = connections.Take("a");
  closed->SetIdle([] {});
  auto other = connections.Take("a");
  EXPECT_FALSE(connections.WaitUntilIdle(now));
  other = nullptr;
  EXPECT_TRUE(connections.WaitUntilIdle(now));
  EXPECT_TRUE(connections.WaitUntilNone(now));
}

class HttpServerConnectionsTest : public HttpServerTest {};

TEST_P(HttpServerConnectionsTest, AnIdleConnectionIsClosedForANewOne) {
  Start({.connections = {2, 2}});
  HttpCaller first(address_, tls());
  HttpCaller second(address_, tls());
  for (HttpCaller* const caller : {&first, &second}) {
    caller->Send(kRequest);
    ASSERT_EQ(HttpStatus(caller->Read("GET /a\n")), 200);
  }
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a", "GET", tls())), 200);
  EXPECT_EQ(first.Read(), "");
  EXPECT_TRUE(first.closed());
  second.Send(kRequest);
  EXPECT_EQ(HttpStatus(second.Read("GET /a\n")), 200);
  EXPECT_EQ(server_->connections_displaced(), 1);
}

TEST_P(HttpServerConnectionsTest, WhereAllAreBusyProbesAreServedAlone) {
  Start({.connections = {1, 1}, .reserved_connections = 1});
  HttpCaller busy(address_, tls());
  busy.Send("GET /held HTTP/1.1\r\nHost: test\r\n\r\n");
  const auto exchange = WaitUntilHeld();
  ASSERT_NE(exchange, nullptr);
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/a", "GET", tls())), 503);
  ASSERT_TRUE(ConnectionsBecome(1));
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/probe", "GET", tls())), 200);
  // An idle one does not keep the place.
  ASSERT_TRUE(ConnectionsBecome(1));
  HttpCaller idle(address_, tls());
  ASSERT_TRUE(ConnectionsBecome(2));
  EXPECT_EQ(HttpStatus(HttpAnswer(address_, "/probe", "GET", tls())), 200);
  exchange->Reply({.body = "later"});
  EXPECT_EQ(HttpStatus(busy.Read("later")), 200);
}

TEST_P(HttpServerConnectionsTest, WhileDrainingAReplyClosesItsConnection) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send("GET /held HTTP/1.1\r\nHost: test\r\n\r\n");
  const auto exchange = WaitUntilHeld();
  ASSERT_NE(exchange, nullptr);
  const auto now = std::chrono::steady_clock::now();
  EXPECT_FALSE(server_->Drain(now));
  exchange->Reply({.body = "later"});
  EXPECT_THAT(caller.Read(), testing::HasSubstr("Connection: close"));
  EXPECT_TRUE(caller.closed());
  EXPECT_TRUE(server_->WaitUntilNone(now + std::chrono::minutes(1)));
}

// To close at once what a caller still sends to would take the reply from it.
TEST_P(HttpServerConnectionsTest, WhileDrainingACallerMaySendOnForAMoment) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send(
      absl::StrCat("GET /held HTTP/1.1\r\nHost: test\r\n\r\n", kRequest));
  const auto exchange = WaitUntilHeld();
  ASSERT_NE(exchange, nullptr);
  EXPECT_FALSE(server_->Drain(std::chrono::steady_clock::now()));
  exchange->Reply({.body = "later"});
  EXPECT_THAT(caller.Read(), testing::HasSubstr("later"));
  EXPECT_TRUE(caller.closed());
  // A connection that is gone answers the first with a reset.
  EXPECT_TRUE(caller.Send(kRequest));
  EXPECT_TRUE(caller.Send(kRequest));
}

INSTANTIATE_TEST_SUITE_P(Speeches, HttpServerConnectionsTest,
                         testing::Values(Speech::kPlain, Speech::kTls,
                                         Speech::kPlainWhereTlsIsTaken),
                         &NameOfSpeech);

}  // namespace
}  // namespace attention::server
