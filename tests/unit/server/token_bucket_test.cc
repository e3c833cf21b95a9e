#include "server/base/token_bucket.h"

#include <gtest/gtest.h>

#include <chrono>

#include "server/telemetry/log_limit.h"

namespace attention::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TokenBucket::Clock::time_point kNow{std::chrono::hours(1)};

TEST(TokenBucketTest, GivesABurstAtOnceAndThenItsRate) {
  constexpr TokenBucket::Limit kLimit = {.rate = 10, .burst = 3};
  TokenBucket bucket;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bucket.TryTake(kLimit, kNow));
  EXPECT_FALSE(bucket.TryTake(kLimit, kNow));
  EXPECT_FALSE(bucket.TryTake(kLimit, kNow + milliseconds(99)));
  EXPECT_TRUE(bucket.TryTake(kLimit, kNow + milliseconds(100)));
  EXPECT_FALSE(bucket.TryTake(kLimit, kNow + milliseconds(100)));
}

TEST(TokenBucketTest, SavesUpNoMoreThanABurst) {
  constexpr TokenBucket::Limit kLimit = {.rate = 10, .burst = 2};
  TokenBucket bucket;
  const auto later = kNow + std::chrono::hours(1);
  EXPECT_TRUE(bucket.TryTake(kLimit, kNow));
  EXPECT_TRUE(bucket.TryTake(kLimit, later));
  EXPECT_TRUE(bucket.TryTake(kLimit, later));
  EXPECT_FALSE(bucket.TryTake(kLimit, later));
}

TEST(TokenBucketTest, ATimeBeforeTheLastGivesNothing) {
  constexpr TokenBucket::Limit kLimit = {.rate = 10, .burst = 1};
  TokenBucket bucket;
  EXPECT_TRUE(bucket.TryTake(kLimit, kNow));
  EXPECT_FALSE(bucket.TryTake(kLimit, kNow - milliseconds(50)));
  EXPECT_FALSE(bucket.TryTake(kLimit, kNow));
}

TEST(TokenBucketTest, WhatIsLargerThanABurstIsPaidForAfterIt) {
  constexpr TokenBucket::Limit kLimit = {.rate = 100, .burst = 100};
  TokenBucket bucket;
  EXPECT_EQ(bucket.Wait(500, kLimit, kNow).count(), 0);
  bucket.Take(500, kLimit, kNow);
  EXPECT_EQ(bucket.Wait(1, kLimit, kNow), seconds(4) + milliseconds(10));
  EXPECT_EQ(bucket.Wait(500, kLimit, kNow), seconds(5));
  EXPECT_FALSE(bucket.IsFull(kNow + seconds(4)));
  EXPECT_TRUE(bucket.IsFull(kNow + seconds(5)));
}

TEST(LogLimitTest, TellsTheFirstAtOnceAndOthersWithALaterOne) {
  LogLimit limit;
  EXPECT_EQ(limit.Count(kNow), 1);
  EXPECT_EQ(limit.Count(kNow), 0);
  EXPECT_EQ(limit.Count(kNow + seconds(4)), 0);
  EXPECT_EQ(limit.Count(kNow + seconds(5)), 3);
}

TEST(LogLimitTest, SaysWhatNoLineHasTold) {
  LogLimit limit({.rate = 10, .burst = 3});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(limit.Count(kNow), 1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(limit.Count(kNow), 0);
  EXPECT_EQ(limit.TakeUntold(), 5);
  EXPECT_EQ(limit.TakeUntold(), 0);
}

}  // namespace
}  // namespace attention::server
