// Whose turn it is, and who is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <latch>
#include <memory>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/request_queue_fixture.h"

namespace attention::server {
namespace {

using ::attention::test::IsOk;
using ::attention::test::StatusIs;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(RequestQueueTest, OneCallersLikeRequestsRunInOrder) {
  for (const char* name : {"1", "2", "3"}) {
    ASSERT_THAT(Add("a", name, milliseconds(1)), IsOk());
  }
  EXPECT_EQ(queue_->waiting(), 3);
  Drain();
  EXPECT_THAT(ran_, ElementsAre("1", "2", "3"));
}

TEST_F(RequestQueueTest, TheBacklogIsWhatWaitsAndWhatIsLeftOfWhatRuns) {
  ASSERT_THAT(Add("a", "a1", seconds(1)), IsOk());
  ASSERT_THAT(Add("b", "b1", seconds(2)), IsOk());
  // What runs costs a millisecond.
  EXPECT_GE(queue_->Backlog(), seconds(3));
  EXPECT_LE(queue_->Backlog(), seconds(3) + milliseconds(1));
}

TEST_F(RequestQueueTest, WhatIsRemovedIsNoBacklog) {
  const auto work = Named("a1", seconds(1));
  ASSERT_THAT(queue_->Add(work, {kA, seconds(1)}), IsOk());
  ASSERT_TRUE(queue_->Remove(work.get()));
  EXPECT_LE(queue_->Backlog(), milliseconds(1));
}

TEST_F(RequestQueueTest, CallersTakeTurns) {
  for (const char* name : {"a1", "a2", "a3"}) {
    ASSERT_THAT(Add("a", name, milliseconds(1)), IsOk());
  }
  ASSERT_THAT(Add("b", "b1", milliseconds(1)), IsOk());
  Drain();
  EXPECT_THAT(ran_, ElementsAre("a1", "b1", "a2", "a3"));
}

TEST_F(RequestQueueTest, TurnsAreByCostNotByNumber) {
  for (const char* name : {"long1", "long2"}) {
    ASSERT_THAT(Add("a", name, milliseconds(400)), IsOk());
  }
  for (int i = 0; i < 4; ++i) {
    ASSERT_THAT(Add("b", absl::StrCat("short", i), milliseconds(100)), IsOk());
  }
  Drain();
  EXPECT_THAT(ran_, ElementsAre("short0", "short1", "short2", "long1", "short3",
                                "long2"));
}

TEST_F(RequestQueueTest, ACallersSmallRequestsDoNotWaitForItsLargeOnes) {
  for (const char* name : {"large1", "large2", "large3"}) {
    ASSERT_THAT(Add("a", name, seconds(10)), IsOk());
  }
  ASSERT_THAT(Add("a", "small", milliseconds(1)), IsOk());
  Drain();
  EXPECT_THAT(ran_, ElementsAre("small", "large1", "large2", "large3"));
}

TEST_F(RequestQueueTest, WhatTookLongerThanEstimatedIsPaidForByItsCaller) {
  ASSERT_THAT(queue_->Add(Named("a1", milliseconds(9)), {kA, milliseconds(1)}),
              IsOk());
  ASSERT_THAT(Add("a", "a2", milliseconds(1)), IsOk());
  for (int i = 0; i < 10; ++i) {
    ASSERT_THAT(Add("b", absl::StrCat("b", i), milliseconds(1)), IsOk());
  }
  Drain();
  const auto second = std::find(ran_.begin(), ran_.end(), "a2");
  EXPECT_EQ(second - ran_.begin(), 10);  // a1 and nine of b's
}

TEST_F(RequestQueueTest, WhatTookLessThanEstimatedIsNotPaidFor) {
  ASSERT_THAT(queue_->Add(Named("a1", milliseconds(1)), {kA, milliseconds(9)}),
              IsOk());
  for (const char* name : {"a2", "a3"}) {
    ASSERT_THAT(Add("c", name, milliseconds(9)), IsOk());
  }
  ASSERT_THAT(Add("a", "a4", milliseconds(9)), IsOk());
  Drain();
  EXPECT_THAT(ran_, ElementsAre("a1", "a2", "a4", "a3"));
}

TEST_F(RequestQueueTest, OfEqualsTheFirstThatCameIsFirst) {
  for (const char* name : {"z", "m", "a"}) {
    ASSERT_THAT(Add(name, name, milliseconds(1)), IsOk());
  }
  Drain();
  EXPECT_THAT(ran_, ElementsAre("z", "m", "a"));
}

TEST_F(RequestQueueTest, WhatIsRemovedDoesNotRun) {
  const auto gone = Named("gone", milliseconds(1));
  ASSERT_THAT(Add("a", "before", milliseconds(1)), IsOk());
  ASSERT_THAT(queue_->Add(gone, {kA, milliseconds(1)}), IsOk());
  ASSERT_THAT(Add("a", "after", milliseconds(1)), IsOk());
  EXPECT_TRUE(queue_->Remove(gone.get()));
  EXPECT_FALSE(queue_->Remove(gone.get()));
  EXPECT_EQ(queue_->waiting(), 2);
  Drain();
  EXPECT_THAT(ran_, ElementsAre("before", "after"));
}

TEST_F(RequestQueueTest, RefusesWhatCouldNotEndByItsDeadline) {
  ASSERT_THAT(Add("a", "long", seconds(3600)), IsOk());
  const auto deadline = std::chrono::system_clock::now() + seconds(600);
  const absl::Status late =
      queue_->Add(Named("late", seconds(3000)), {kA, seconds(3000), deadline});
  EXPECT_THAT(late, StatusIs(absl::StatusCode::kResourceExhausted,
                             HasSubstr("the server is busy")));
  EXPECT_TRUE(late.GetPayload("type.googleapis.com/google.rpc.RetryInfo"));
  EXPECT_EQ(queue_->waiting(), 1);
}

TEST_F(RequestQueueTest, TakesWhatHasNoDeadline) {
  ASSERT_THAT(Add("a", "long", hours(10)), IsOk());
  EXPECT_THAT(Add("a", "longer", hours(11)), IsOk());
}

TEST_F(RequestQueueTest, AnotherCallersBacklogDoesNotCountAgainstOne) {
  for (int i = 0; i < 10; ++i) {
    ASSERT_THAT(Add("a", "many", seconds(60)), IsOk());
  }
  EXPECT_THAT(queue_->Add(Named("one", seconds(60)),
                          {kB, seconds(60),
                           std::chrono::system_clock::now() + seconds(300)}),
              IsOk());
}

TEST(IdleRequestQueueTest, TriesWhatLooksTooLong) {
  WorkerPool workers(1);
  std::latch ran(1);
  RequestQueue queue(workers);
  EXPECT_THAT(
      queue.Add(std::make_shared<Closure>([&](Turn&) { ran.count_down(); }),
                {kA, hours(1), std::chrono::system_clock::now() + seconds(1)}),
      IsOk());
  ran.wait();
}

}  // namespace
}  // namespace attention::server
