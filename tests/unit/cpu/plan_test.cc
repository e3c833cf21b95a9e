// Into which ranges decode splits keys.

#include "core/cpu/plan.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace attention::cpu {
namespace {

constexpr int64_t kTile = 64;
constexpr int64_t kMost = 32;

Plan Decoding() {
  Plan plan;
  plan.decode = true;
  plan.key_tile = kTile;
  plan.splits = kMost;
  plan.keys_of_split = 1024;
  return plan;
}

TEST(PlanSplitsTest, FollowTheKeysThatAreAttended) {
  const Plan plan = Decoding();
  EXPECT_EQ(plan.SplitsOf({0, 0}), 1);
  EXPECT_EQ(plan.SplitsOf({0, 1}), 1);
  EXPECT_EQ(plan.SplitsOf({60000, 60100}), 1);
  EXPECT_EQ(plan.SplitsOf({0, 4096}), 4);
  EXPECT_EQ(plan.SplitsOf({61440, 65536}), 4);
}

TEST(PlanSplitsTest, AreNoMoreThanThePlanHas) {
  EXPECT_EQ(Decoding().SplitsOf({0, 1 << 20}), kMost);
  Plan one = Decoding();
  one.splits = 1;
  EXPECT_EQ(one.SplitsOf({0, 1 << 20}), 1);
}

TEST(PlanSplitsTest, CoverTheKeysInOrderInWholeTiles) {
  const Plan plan = Decoding();
  for (const int64_t begin : {0, 1, 1000}) {
    for (const int64_t count : {1, 1023, 2048, 2049, 5000, 32768, 100001}) {
      const KeyRange attended = {begin, begin + count};
      int64_t next = begin;
      for (int64_t n = 0; n < plan.SplitsOf(attended); ++n) {
        const KeyRange keys = plan.SplitKeys(attended, n);
        EXPECT_EQ(keys.begin, next);
        EXPECT_LT(keys.begin, keys.end);
        EXPECT_TRUE((keys.end - keys.begin) % kTile == 0 ||
                    keys.end == attended.end);
        next = keys.end;
      }
      EXPECT_EQ(next, attended.end);
    }
  }
}

}  // namespace
}  // namespace attention::cpu
