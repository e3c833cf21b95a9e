#include "server/scheduling/cost_model.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace attention::server {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

TEST(CostModelTest, GuessesRatherTooLowAtFirst) {
  const CostModel costs;
  // A hundred million multiply-adds: no thread takes less than a millisecond.
  const nanoseconds guess = costs.Estimate({0, 1e8});
  EXPECT_GT(guess, nanoseconds(0));
  EXPECT_LE(guess, microseconds(1000));
}

TEST(CostModelTest, SaysWhatALikeRequestTook) {
  CostModel costs;
  costs.Learn({0, 1000}, microseconds(50), "a");
  EXPECT_EQ(costs.Estimate({0, 1000}), microseconds(50));
  EXPECT_EQ(costs.Estimate({0, 2000}), microseconds(100));
}

TEST(CostModelTest, UsesTheNearestSizeThatWasMeasured) {
  CostModel costs;
  costs.Learn({0, 1e6}, microseconds(1000), "a");  // 1 ns each
  costs.Learn({0, 10}, microseconds(1), "a");      // 100 ns each
  EXPECT_EQ(costs.Estimate({0, 1e9}), microseconds(1'000'000));
  EXPECT_EQ(costs.Estimate({0, 1}), nanoseconds(100));
}

TEST(CostModelTest, KeepsKindsApart) {
  CostModel costs;
  costs.Learn({0, 1000}, microseconds(1), "a");
  costs.Learn({1, 1000}, microseconds(20), "a");
  EXPECT_EQ(costs.Estimate({0, 1000}), microseconds(1));
  EXPECT_EQ(costs.Estimate({1, 1000}), microseconds(20));
}

TEST(CostModelTest, FollowsWhatChanges) {
  CostModel costs;
  costs.Learn({0, 1000}, microseconds(1), "a");
  for (int i = 0; i < 100; ++i) costs.Learn({0, 1000}, microseconds(10), "a");
  EXPECT_GT(costs.Estimate({0, 1000}), microseconds(9));
}

TEST(CostModelTest, OneCallersTimesDoNotMakeAnothersLookLong) {
  CostModel costs;
  costs.Learn({0, 1000}, microseconds(1), "a");
  for (int i = 0; i < 100; ++i) {
    costs.Learn({0, 1000}, microseconds(9), "outlier");
  }
  EXPECT_EQ(costs.Estimate({0, 1000}), microseconds(1));
}

TEST(CostModelTest, IsAMedianOverCallers) {
  CostModel costs;
  for (int i = 1; i <= 5; ++i) {
    costs.Learn({0, 1000}, microseconds(i), std::to_string(i));
  }
  EXPECT_EQ(costs.Estimate({0, 1000}), microseconds(3));
}

TEST(CostModelTest, OneCallersOutliersDoNotCount) {
  CostModel costs;
  for (const int took : {1, 90, 1, 1, 90}) {
    costs.Learn({0, 1000}, microseconds(took), "a");
  }
  EXPECT_EQ(costs.Estimate({0, 1000}), microseconds(1));
}

TEST(CostModelTest, RemembersThoseMeasuredLast) {
  CostModel costs;
  for (int i = 0; i < 100; ++i) {
    costs.Learn({0, 1000}, microseconds(9), std::to_string(i));
  }
  for (int i = 0; i < 16; ++i) {
    costs.Learn({0, 1000}, microseconds(1), std::to_string(i));
  }
  EXPECT_EQ(costs.Estimate({0, 1000}), microseconds(1));
}

TEST(CostModelTest, WorkBeyondAllMeasureTakesForEver) {
  const CostModel costs;
  EXPECT_GT(costs.Estimate({0, 1e300}), std::chrono::hours(24 * 365));
  EXPECT_EQ(costs.Estimate({0, 0}), nanoseconds(0));
}

}  // namespace
}  // namespace attention::server
