// What runs within a large request, or beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/request_queue_fixture.h"

namespace attention::server {
namespace {

using ::attention::test::IsOk;
using std::chrono::hours;
using std::chrono::milliseconds;
using ::testing::ElementsAre;

// A large request runs, and gives way so many times.
class GiveWayTest : public RequestQueueTest {
 protected:
  // Behind the request that the fixture holds: it ends, and this one begins.
  void AddLarge(int times) {
    ASSERT_THAT(
        queue_->Add(std::make_shared<Closure>([this, times](Turn& turn) {
                      large_.count_down();
                      small_are_there_.wait();
                      for (int i = 0; i < times; ++i) {
                        turn.GiveWay();
                        Pass(std::chrono::minutes(1));  // a tile
                      }
                      ran_.push_back("large");
                    }),
                    {kA, hours(1)}),
        IsOk());
    Open();
    large_.wait();
  }

  std::latch large_{1};
  std::latch small_are_there_{1};
};

TEST_F(GiveWayTest, ASmallRequestRunsWithinALargeOne) {
  AddLarge(1);
  ASSERT_THAT(Add("b", "small", milliseconds(1)), IsOk());
  small_are_there_.count_down();
  Drain();
  EXPECT_THAT(ran_, ElementsAre("small", "large"));
}

TEST_F(GiveWayTest, ALikeRequestWaits) {
  AddLarge(1);
  ASSERT_THAT(Add("b", "as large", hours(1)), IsOk());
  small_are_there_.count_down();
  Drain();
  EXPECT_THAT(ran_, ElementsAre("large", "as large"));
}

TEST_F(GiveWayTest, WhatCostsHalfWaits) {
  AddLarge(1);
  for (const int part : {2, 3, 4, 5, 6, 7}) {
    ASSERT_THAT(
        Add("b", absl::StrCat("1/", part), std::chrono::minutes(60) / part),
        IsOk());
  }
  small_are_there_.count_down();
  Drain();
  EXPECT_EQ(ran_.front(), "large");
}

TEST_F(GiveWayTest, WhatRunsWithinGivesWayToo) {
  AddLarge(1);
  std::latch middle_runs(1);
  std::latch small_is_there(1);
  ASSERT_THAT(queue_->Add(std::make_shared<Closure>([&](Turn& turn) {
                            middle_runs.count_down();
                            small_is_there.wait();
                            turn.GiveWay();
                            ran_.push_back("middle");
                          }),
                          {kB, std::chrono::minutes(1)}),
              IsOk());
  small_are_there_.count_down();
  middle_runs.wait();
  ASSERT_THAT(Add("c", "small", milliseconds(1)), IsOk());
  small_is_there.count_down();
  Drain();
  EXPECT_THAT(ran_, ElementsAre("small", "middle", "large"));
}

// What ran within a large request of `a` that had 60 tiles of a minute.
class SharesWithinTest : public GiveWayTest {
 protected:
  void AddOne(const FairQueue::Path& path, const std::string& name) {
    ASSERT_THAT(queue_->Add(Named(name, kSmall), {path, kSmall}), IsOk());
  }
  void AddMany(const FairQueue::Path& path, const std::string& name) {
    for (int i = 0; i < 200; ++i) AddOne(path, name);
  }
  // Minutes that these had.
  int64_t Had(const std::string& name) {
    const auto large = std::find(ran_.begin(), ran_.end(), "large");
    return std::count(ran_.begin(), large, name) * kSmall.count();
  }

  static constexpr std::chrono::minutes kSmall{2};
};

TEST_F(SharesWithinTest, SmallOnesGetNoMoreThanTheirShare) {
  AddLarge(60);
  AddMany(kB, "small");
  small_are_there_.count_down();
  Drain();
  EXPECT_EQ(Had("small"), 60);
}

TEST_F(SharesWithinTest, EveryCallerHasOne) {
  AddLarge(60);
  AddMany(kB, "b");
  AddMany({"c", "c"}, "c");
  small_are_there_.count_down();
  Drain();
  EXPECT_EQ(Had("b"), 60);
  EXPECT_EQ(Had("c"), 60);
}

TEST_F(SharesWithinTest, ConnectionsOfOneCallerHaveOneTogether) {
  AddLarge(60);
  AddMany({"b", "b1"}, "b");
  AddMany({"b", "b2"}, "b");
  small_are_there_.count_down();
  Drain();
  EXPECT_EQ(Had("b"), 60);
}

TEST_F(SharesWithinTest, ACallersOwnSmallOnesRunWithinItsLargeOne) {
  AddLarge(60);
  AddMany(kA, "own");
  small_are_there_.count_down();
  Drain();
  EXPECT_EQ(Had("own"), 60);
}

TEST_F(SharesWithinTest, WhoConnectsAnewForEachGetsNoMoreThanItsShare) {
  AddLarge(60);
  for (int i = 0; i < 60; ++i) {
    AddOne({"b", absl::StrCat("b", i)}, "b");
  }
  AddOne({"c", "c"}, "c");
  small_are_there_.count_down();
  Drain();
  EXPECT_EQ(Had("c"), 2);
  EXPECT_EQ(Had("b"), 58);
}

void AddTo(RequestQueue& queue, const QueueEntry& entry,
           std::function<void(Turn&)> run) {
  ASSERT_THAT(queue.Add(std::make_shared<Closure>(std::move(run)), entry),
              IsOk());
}

TEST(TwoWorkersTest, WhatLastsLongerThanALaterOneStillGivesWay) {
  std::vector<std::string> ran;
  std::latch both_run(2);
  std::latch other_worker_is_busy(1);
  std::latch small_are_there(1);
  std::latch end(1);
  WorkerPool workers(2);  // ends first: its tasks use what is above
  auto queue = std::make_unique<RequestQueue>(workers);
  AddTo(*queue, {kA, hours(1)}, [&](Turn& turn) {
    both_run.arrive_and_wait();
    small_are_there.wait();
    // As often as it has tiles: its share grows meanwhile.
    for (int i = 0; i < 1'000'000 && ran.size() < 2; ++i) turn.GiveWay();
    ran.push_back("large");
    end.count_down();
  });
  // Its turn comes after the other's hour, and it ends at once.
  AddTo(*queue, {kA, hours(1)}, [&](Turn&) { both_run.arrive_and_wait(); });
  both_run.wait();
  workers.Post([&] {
    other_worker_is_busy.count_down();
    end.wait();
  });
  other_worker_is_busy.wait();
  for (const char* name : {"small1", "small2"}) {
    AddTo(*queue, {kB, std::chrono::nanoseconds(1)},
          [&ran, name](Turn&) { ran.push_back(name); });
  }
  small_are_there.count_down();
  queue.reset();
  EXPECT_THAT(ran, ElementsAre("small1", "small2", "large"));
}

// It has one worker, whose time all of that is.
TEST(TwoWorkersTest, WhatRunsWithinDoesNotOwnWhatItGivesAway) {
  std::atomic<RequestQueue::Clock::time_point> now = {};
  std::latch large_runs(1);
  std::latch other_worker_is_busy(1);
  std::latch middle_is_there(1);
  std::latch middle_runs(1);
  std::latch small_is_there(1);
  std::latch end(1);
  std::chrono::nanoseconds own = hours(-1);
  WorkerPool workers(2);  // ends first: its tasks use what is above
  auto queue =
      std::make_unique<RequestQueue>(workers, [&now] { return now.load(); });
  AddTo(*queue, {kA, hours(1)}, [&](Turn& turn) {
    large_runs.count_down();
    middle_is_there.wait();
    turn.GiveWay();
    end.count_down();
  });
  large_runs.wait();
  workers.Post([&] {
    other_worker_is_busy.count_down();
    end.wait();
  });
  other_worker_is_busy.wait();
  AddTo(*queue, {kB, std::chrono::minutes(1)}, [&](Turn& turn) {
    middle_runs.count_down();
    small_is_there.wait();
    turn.GiveWay();
    own = turn.OwnTime();
  });
  middle_is_there.count_down();
  middle_runs.wait();
  AddTo(*queue, {{"c", "c"}, milliseconds(1)},
        [&now](Turn&) { now = now.load() + hours(1); });
  small_is_there.count_down();
  queue.reset();
  EXPECT_EQ(own, hours(0));
}

// What one thread computes has the bits of any number of them (CpuThreadsTest).
TEST(TwoWorkersTest, SmallOnesThatWaitTogetherRunSideBySideOnOneWorkerEach) {
  std::latch both_held(2);
  std::latch all_wait(1);
  std::latch both_run(2);
  std::latch others_are_done(3);
  std::set<std::thread::id> threads;  // of the second one's work
  std::mutex mutex;
  WorkerPool workers(2);  // ends first: its tasks use what is above
  auto queue = std::make_unique<RequestQueue>(workers);
  const QueueEntry small = {kA, std::chrono::microseconds(100)};
  for (int n = 0; n < 2; ++n) {
    AddTo(*queue, small, [&](Turn&) {
      both_held.count_down();
      all_wait.wait();
    });
  }
  both_held.wait();
  AddTo(*queue, small, [&](Turn&) {
    both_run.arrive_and_wait();
    others_are_done.count_down();
  });
  AddTo(*queue, small, [&](Turn&) {
    both_run.arrive_and_wait();
    others_are_done.wait();
    // The other worker has nothing to do now, and does not help.
    workers.ParallelFor(100'000, {}, [&](int64_t) {
      std::this_thread::yield();
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
  });
  // So many still wait when the second of those begins.
  for (int n = 0; n < 2; ++n) {
    AddTo(*queue, small, [&](Turn&) { others_are_done.count_down(); });
  }
  all_wait.count_down();
  queue.reset();
  EXPECT_THAT(threads, ::testing::SizeIs(1));
}

}  // namespace
}  // namespace attention::server
