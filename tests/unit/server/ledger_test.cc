#include "server/scheduling/ledger.h"

#include <gtest/gtest.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

constexpr Kept kKind = Kept::kBodies;

TEST(Ledger, CountsForAllForAnAddressAndForEachOfItsConnections) {
  Ledger ledger;
  const auto first = ledger.Take(kKind, {"a:1", "a"}, 10);
  const auto second = ledger.Take(kKind, {"a:2", "a"}, 5);
  const auto other = ledger.Take(kKind, {.address = "b"}, 1);
  EXPECT_EQ(ledger.Of(kKind).holds, 3);
  EXPECT_EQ(ledger.Of(kKind).amount, 16);
  EXPECT_EQ(ledger.Of(kKind, "a").holds, 2);
  EXPECT_EQ(ledger.Of(kKind, "a").amount, 15);
  EXPECT_EQ(ledger.Of(kKind, "nobody").holds, 0);
  EXPECT_EQ(ledger.Of(Kept::kRequests).holds, 0);
  const auto third = ledger.Take(
      kKind, {"a:1", "a"}, 0, [](const auto& all, Ledger::Account& own) {
        EXPECT_EQ(all.of(kKind).amount, 16);
        EXPECT_EQ(own.of(kKind).amount, 10);
        EXPECT_EQ(own.address()->of(kKind).amount, 15);
        return true;
      });
  EXPECT_TRUE(third);
}

TEST(Ledger, WhatIsRefusedIsNotCounted) {
  Ledger ledger;
  const auto hold =
      ledger.Take(kKind, {.address = "a"}, 10,
                  [](const auto& /*all*/, auto& /*own*/) { return false; });
  EXPECT_FALSE(hold);
  EXPECT_EQ(ledger.Of(kKind).holds, 0);
  EXPECT_EQ(ledger.Of(kKind).amount, 0);
}

TEST(Ledger, AHoldIsResizedAsIfItWereTakenAnew) {
  Ledger ledger;
  auto hold = ledger.Take(kKind, {.address = "a"}, 10);
  EXPECT_TRUE(
      ledger.Resize(hold, 20, [](const auto& all, Ledger::Account& own) {
        EXPECT_EQ(all.of(kKind).amount, 0);
        EXPECT_EQ(own.of(kKind).holds, 0);
        return true;
      }));
  EXPECT_EQ(ledger.Of(kKind, "a").amount, 20);
  EXPECT_FALSE(ledger.Resize(
      hold, 30, [](const auto& /*all*/, auto& /*own*/) { return false; }));
  EXPECT_EQ(hold.amount(), 20);
  EXPECT_EQ(ledger.Of(kKind, "a").amount, 20);
}

TEST(Ledger, AHoldIsGivenBackOnce) {
  Ledger ledger;
  {
    auto hold = ledger.Take(kKind, {.address = "a"}, 10);
    Ledger::Hold moved = std::move(hold);
    moved = ledger.Take(kKind, {.address = "a"}, 1);
    EXPECT_EQ(ledger.Of(kKind).holds, 1);
    EXPECT_EQ(ledger.Of(kKind).amount, 1);
  }
  EXPECT_EQ(ledger.Of(kKind).holds, 0);
}

TEST(Ledger, NamesTheAddressWithMost) {
  Ledger ledger;
  EXPECT_EQ(ledger.Largest(kKind), "");
  const auto a = ledger.Take(kKind, {.address = "a"}, 2);
  {
    const auto b = ledger.Take(kKind, {.address = "b"}, 4);
    EXPECT_EQ(ledger.Largest(kKind), "b");
  }
  EXPECT_EQ(ledger.Largest(kKind), "a");
}

TEST(Ledger, RemembersWhatIsHeldBesideManyThatCameAndWent) {
  Ledger ledger;
  const auto kept = ledger.Take(kKind, {"kept", "a"}, 7);
  for (int i = 0; i < 5000; ++i) {
    ledger.Take(kKind, {absl::StrCat("caller", i), absl::StrCat(i)}, 1,
                Ledger::Always,
                Ledger::Clock::time_point(std::chrono::seconds(i)));
  }
  EXPECT_EQ(ledger.Of(kKind).amount, 7);
  EXPECT_EQ(ledger.Of(kKind, "a").amount, 7);
}

}  // namespace
}  // namespace attention::server
