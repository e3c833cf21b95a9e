#include "server/telemetry/rate_limit.h"

#include <gtest/gtest.h>

#include <chrono>

namespace attention::server {
namespace {

using std::chrono::milliseconds;

const std::chrono::steady_clock::time_point kStart{std::chrono::hours(1)};

TEST(RateLimit, LetsABurstPassAndCountsTheRest) {
  RateLimit limit(3, 10);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limit.Ask(kStart).pass);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(limit.Ask(kStart).pass);
  EXPECT_EQ(limit.TakeLeftOut(), 5);
  EXPECT_EQ(limit.TakeLeftOut(), 0);
}

TEST(RateLimit, LetsSoManyPassInASecondAndTellsWhatItLeftOut) {
  RateLimit limit(1, 10);
  EXPECT_TRUE(limit.Ask(kStart).pass);
  EXPECT_FALSE(limit.Ask(kStart + milliseconds(50)).pass);
  EXPECT_FALSE(limit.Ask(kStart + milliseconds(60)).pass);
  const RateLimit::Decision third = limit.Ask(kStart + milliseconds(110));
  EXPECT_TRUE(third.pass);
  EXPECT_EQ(third.left_out, 2);
  EXPECT_FALSE(limit.Ask(kStart + milliseconds(120)).pass);
}

TEST(RateLimit, SavesUpNoMoreThanABurst) {
  RateLimit limit(2, 10);
  const auto later = kStart + std::chrono::hours(1);
  EXPECT_TRUE(limit.Ask(later).pass);
  EXPECT_TRUE(limit.Ask(later).pass);
  EXPECT_FALSE(limit.Ask(later).pass);
}

TEST(RateLimit, ATimeBeforeTheLastGivesNothing) {
  RateLimit limit(1, 10);
  EXPECT_TRUE(limit.Ask(kStart).pass);
  EXPECT_FALSE(limit.Ask(kStart - std::chrono::hours(1)).pass);
  EXPECT_FALSE(limit.Ask(kStart).pass);
}

}  // namespace
}  // namespace attention::server
