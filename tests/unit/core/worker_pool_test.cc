#include "core/worker_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stop_token>
#include <thread>
#include <vector>

namespace attention {
namespace {

TEST(WorkerPool, CallsEveryIndexOnce) {
  std::vector<int> calls(1000);
  WorkerPool pool(3);
  pool.ParallelFor(1000, {},
                   [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
  EXPECT_EQ(calls, std::vector<int>(1000, 1));
}

TEST(WorkerPool, HasAsManyThreadsAsAskedForEvenOnASmallMachine) {
  // Seven calls that wait for each other end only where seven threads run them.
  std::latch all(7);
  WorkerPool pool(7);
  pool.Post([&] {
    pool.ParallelFor(7, {}, [&](int64_t) { all.arrive_and_wait(); });
  });
  all.wait();
}

TEST(WorkerPool, ForCallersACallerIsOneOfTheThreads) {
  std::latch all(3);
  WorkerPool pool(3, /*for_callers=*/true);
  pool.ParallelFor(3, {}, [&](int64_t) { all.arrive_and_wait(); });
}

TEST(WorkerPool, ForCallersNoneOfAsManyAsThreadsWaits) {
  // Calls that wait for each other, while the pool's own threads are held.
  std::latch all(3);
  WorkerPool pool(3, /*for_callers=*/true);
  for (int own = 0; own < 2; ++own) pool.Post([&] { all.wait(); });
  std::vector<std::jthread> callers;
  callers.reserve(3);
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      pool.ParallelFor(2, {}, [&](int64_t index) {
        if (index == 0) all.arrive_and_wait();
      });
    });
  }
}

TEST(WorkerPool, NeverRunsMoreCallsAtOnceThanThreads) {
  std::atomic<int> running = 0;
  std::atomic<int> most = 0;
  std::atomic<int> calls = 0;
  {
    WorkerPool pool(2);
    for (int caller = 0; caller < 4; ++caller) {
      pool.Post([&] {
        pool.ParallelFor(50, {}, [&](int64_t) {
          const int now = ++running;
          int seen = most;
          while (now > seen && !most.compare_exchange_weak(seen, now)) {
          }
          ++calls;
          --running;
        });
      });
    }
  }  // waits for all of them
  EXPECT_EQ(calls, 200);
  EXPECT_LE(most, 2);
}

TEST(WorkerPool, LeavesOutCallsAfterAStop) {
  std::stop_source stop;
  int calls = 0;
  WorkerPool pool(1);
  pool.ParallelFor(1000, stop.get_token(), [&](int64_t) {
    if (++calls == 10) stop.request_stop();
  });
  EXPECT_EQ(calls, 10);
}

TEST(WorkerPool, DoesNothingForAStoppedCaller) {
  WorkerPool pool(2);
  std::stop_source stop;
  stop.request_stop();
  pool.ParallelFor(1, stop.get_token(), [&](int64_t) { FAIL(); });
}

TEST(WorkerPool, WaitsForPostedWorkWhenDestroyed) {
  std::atomic<int> ran = 0;
  {
    WorkerPool pool(2);
    for (int i = 0; i < 100; ++i) pool.Post([&] { ++ran; });
  }
  EXPECT_EQ(ran, 100);
}

TEST(WorkerPool, LoopsInsidePostedTasksDoNotRunOtherTasksMeanwhile) {
  std::vector<int> order;
  std::latch done(2);
  WorkerPool pool(1);
  for (int task = 0; task < 2; ++task) {
    pool.Post([&, task] {
      pool.ParallelFor(20, {}, [&](int64_t) { order.push_back(task); });
      done.count_down();
    });
  }
  done.wait();
  ASSERT_EQ(order.size(), 40U);
  for (size_t i = 1; i < 20; ++i) EXPECT_EQ(order[i], order[0]);
}

TEST(WorkerPool, InPlaceTheCallingThreadDoesAll) {
  WorkerPool pool(4);
  std::vector<std::thread::id> threads(100);
  const auto run = [&] {
    pool.ParallelFor(100, {}, [&](int64_t i) {
      threads[static_cast<size_t>(i)] = std::this_thread::get_id();
    });
  };
  const WorkerPool::InPlace alone;
  run();
  EXPECT_THAT(threads, ::testing::Each(std::this_thread::get_id()));
}

TEST(WorkerPool, InPlaceLeavesOutCallsAfterAStop) {
  WorkerPool pool(2);
  std::stop_source stop;
  int calls = 0;
  const WorkerPool::InPlace alone;
  pool.ParallelFor(100, stop.get_token(), [&](int64_t index) {
    ++calls;
    if (index == 9) stop.request_stop();
  });
  EXPECT_EQ(calls, 10);
}

}  // namespace
}  // namespace attention
