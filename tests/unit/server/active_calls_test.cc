#include "server/scheduling/active_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <thread>

namespace attention::server {
namespace {

using std::chrono::steady_clock;

class CountingCall : public DrainableCall {
 public:
  void OnDrain() override { ++drains; }
  void OnDrainEnd() override { ++ends; }

  std::atomic<int> drains = 0;
  std::atomic<int> ends = 0;
};

TEST(ActiveCalls, HasNoneAtFirst) {
  ActiveCalls calls;
  EXPECT_TRUE(calls.WaitUntilNone(steady_clock::now()));
}

TEST(ActiveCalls, KeepsACallUntilItIsRemoved) {
  ActiveCalls calls;
  auto call = std::make_shared<CountingCall>();
  const std::weak_ptr<CountingCall> weak = call;
  const DrainableCall* key = call.get();
  calls.Add(std::move(call));
  EXPECT_FALSE(weak.expired());
  EXPECT_FALSE(calls.WaitUntilNone(steady_clock::now()));
  calls.Remove(key);
  EXPECT_TRUE(weak.expired());
  EXPECT_TRUE(calls.WaitUntilNone(steady_clock::now()));
}

TEST(ActiveCalls, TellsItsCallsOfADrainAndItsEnd) {
  ActiveCalls calls;
  const auto call = std::make_shared<CountingCall>();
  calls.Add(call);
  EXPECT_EQ(call->drains, 0);
  calls.StartDrain();
  EXPECT_EQ(call->drains, 1);
  EXPECT_EQ(call->ends, 0);
  calls.EndDrain();
  EXPECT_EQ(call->ends, 1);
}

TEST(ActiveCalls, TellsCallsThatComeDuringADrain) {
  ActiveCalls calls;
  calls.StartDrain();
  const auto during = std::make_shared<CountingCall>();
  calls.Add(during);
  EXPECT_EQ(during->drains, 1);
  calls.EndDrain();
  const auto late = std::make_shared<CountingCall>();
  calls.Add(late);
  EXPECT_EQ(late->drains, 1);
  EXPECT_EQ(late->ends, 1);
}

TEST(ActiveCalls, AWaitEndsWithTheLastCall) {
  ActiveCalls calls;
  const auto call = std::make_shared<CountingCall>();
  calls.Add(call);
  std::latch waiting(1);
  std::thread remover([&] {
    waiting.wait();
    calls.Remove(call.get());
  });
  waiting.count_down();
  EXPECT_TRUE(calls.WaitUntilNone(steady_clock::time_point::max()));
  remover.join();
}

// A call may end, and be removed, within being told.
class EndingCall : public DrainableCall {
 public:
  explicit EndingCall(ActiveCalls& calls) : calls_(calls) {}
  void OnDrain() override {
    std::thread([this] { calls_.Remove(this); }).join();
  }
  void OnDrainEnd() override {}

 private:
  ActiveCalls& calls_;
};

TEST(ActiveCalls, ACallMayEndWhileItIsTold) {
  ActiveCalls calls;
  calls.Add(std::make_shared<EndingCall>(calls));
  calls.StartDrain();
  EXPECT_TRUE(calls.WaitUntilNone(steady_clock::now()));
}

}  // namespace
}  // namespace attention::server
