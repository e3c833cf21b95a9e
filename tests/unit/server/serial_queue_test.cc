#include "server/scheduling/serial_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "server/scheduling/retry_after.h"
#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

using ::attention::test::IsOk;
using ::attention::test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kNever = std::chrono::steady_clock::time_point::max();

// A task that has begun and waits for Open(). It may still be ending when this
// is destroyed.
class HeldTask {
 public:
  explicit HeldTask(SerialQueue& queue) {
    queue.Add([state = state_](const absl::Status& turn) {
      state->begun.set_value(turn);
      state->open.get_future().wait();
    });
    EXPECT_THAT(state_->begun.get_future().get(), IsOk());
  }
  void Open() { state_->open.set_value(); }

 private:
  struct State {
    std::promise<absl::Status> begun;
    std::promise<void> open;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST(SerialQueue, RunsTasksInOrderOnAThreadOfItsOwn) {
  std::vector<int> order;
  std::thread::id thread;
  SerialQueue queue("the disk");
  for (int n = 0; n < 3; ++n) {
    queue.Add([&, n](const absl::Status& turn) {
      EXPECT_THAT(turn, IsOk());
      order.push_back(n);
      thread = std::this_thread::get_id();
    });
  }
  ASSERT_TRUE(queue.WaitUntilIdle(kNever));
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(SerialQueue, TurnsAwayWhatItHasNoPlaceFor) {
  absl::Status waiting;
  std::optional<absl::Status> refused;
  SerialQueue queue("the disk", /*most_waiting=*/1);
  HeldTask held(queue);
  queue.Add([&](const absl::Status& turn) { waiting = turn; });
  queue.Add([&](const absl::Status& turn) { refused = turn; });
  ASSERT_TRUE(refused.has_value());
  EXPECT_THAT(*refused,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("the disk is busy: 1 calls wait for it "
                                 "(at most 1)")));
  EXPECT_TRUE(RetryTimeOf(*refused).has_value());
  held.Open();
  ASSERT_TRUE(queue.WaitUntilIdle(kNever));
  EXPECT_THAT(waiting, IsOk());
}

TEST(SerialQueue, LeavesHalfOfThePlacesToOthers) {
  std::vector<absl::StatusCode> told;
  const auto note = [&told](const absl::Status& turn) {
    told.push_back(turn.code());
  };
  SerialQueue queue("the disk", /*most_waiting=*/2);
  HeldTask held(queue);
  queue.Add(note, SerialQueue::Places::kHalf);
  queue.Add(note, SerialQueue::Places::kHalf);
  EXPECT_THAT(told, ElementsAre(absl::StatusCode::kResourceExhausted));
  queue.Add(note);
  held.Open();
  ASSERT_TRUE(queue.WaitUntilIdle(kNever));
  EXPECT_THAT(told, ElementsAre(absl::StatusCode::kResourceExhausted,
                                absl::StatusCode::kOk, absl::StatusCode::kOk));
}

TEST(SerialQueue, OneCallerHasHalfOfThePlacesAtMost) {
  std::vector<absl::Status> told;
  const auto note = [&told](const absl::Status& turn) { told.push_back(turn); };
  SerialQueue queue("the disk", /*most_waiting=*/4);
  HeldTask held(queue);
  const SerialQueue::Waiter one = {.party = "one"};
  for (int n = 0; n < 3; ++n) queue.Add(note, SerialQueue::Places::kAll, one);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told.front(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("the disk is busy: 2 calls of this caller "
                                 "wait for it (at most 2)")));
  EXPECT_TRUE(RetryTimeOf(told.front()).has_value());
  queue.Add(note, SerialQueue::Places::kAll, {.party = "another"});
  // Half of the places has been taken.
  queue.Add(note, SerialQueue::Places::kHalf, {.party = "a third"});
  EXPECT_EQ(told.size(), 2U);
  queue.Add(note, SerialQueue::Places::kUnbounded, one);
  held.Open();
  ASSERT_TRUE(queue.WaitUntilIdle(kNever));
  EXPECT_EQ(told.size(), 6U);
}

TEST(SerialQueue, OneCallerHasHalfOfHalfOfThePlaces) {
  std::vector<absl::Status> told;
  const auto note = [&told](const absl::Status& turn) { told.push_back(turn); };
  SerialQueue queue("the disk", /*most_waiting=*/8);
  HeldTask held(queue);
  for (int n = 0; n < 3; ++n) {
    queue.Add(note, SerialQueue::Places::kHalf, {.party = "one"});
  }
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told.front(), StatusIs(absl::StatusCode::kResourceExhausted,
                                     HasSubstr("(at most 2)")));
  held.Open();
  ASSERT_TRUE(queue.WaitUntilIdle(kNever));
}

TEST(SerialQueue, WhatNobodyWaitsForLeavesItsPlaceToOthers) {
  std::vector<absl::StatusCode> told;
  const auto note = [&told](const absl::Status& turn) {
    told.push_back(turn.code());
  };
  bool gone = false;
  const auto wanted = [&gone] {
    return gone ? absl::CancelledError("gone") : absl::OkStatus();
  };
  SerialQueue queue("the disk", /*most_waiting=*/2);
  HeldTask held(queue);
  queue.Add(note, SerialQueue::Places::kAll, {.wanted = wanted});
  queue.Add(note, SerialQueue::Places::kAll);
  queue.Add(note, SerialQueue::Places::kAll);
  EXPECT_THAT(told, ElementsAre(absl::StatusCode::kResourceExhausted));
  gone = true;
  queue.Add(note, SerialQueue::Places::kAll);
  EXPECT_THAT(told, ElementsAre(absl::StatusCode::kResourceExhausted,
                                absl::StatusCode::kCancelled));
  told.clear();
  held.Open();
  ASSERT_TRUE(queue.WaitUntilIdle(kNever));
  EXPECT_THAT(told, ElementsAre(absl::StatusCode::kOk, absl::StatusCode::kOk));
}

TEST(SerialQueue, WhatNobodyWaitsForInItsTurnIsToldWhy) {
  absl::Status told;
  SerialQueue queue("the disk");
  queue.Add([&told](const absl::Status& turn) { told = turn; },
            SerialQueue::Places::kAll,
            {.wanted = [] { return absl::CancelledError("gone"); }});
  ASSERT_TRUE(queue.WaitUntilIdle(kNever));
  EXPECT_THAT(told, StatusIs(absl::StatusCode::kCancelled, "gone"));
}

TEST(SerialQueue, WhatGivesUpItsPlaceIsToldWhatItSaidThen) {
  absl::Status told;
  SerialQueue queue("the disk", /*most_waiting=*/1);
  HeldTask held(queue);
  queue.Add([&told](const absl::Status& turn) { told = turn; },
            SerialQueue::Places::kAll, {.wanted = [asked = 0]() mutable {
              return ++asked == 1 ? absl::CancelledError("gone")
                                  : absl::OkStatus();
            }});
  queue.Add([](const absl::Status& /*turn*/) {});
  EXPECT_THAT(told, StatusIs(absl::StatusCode::kCancelled, "gone"));
  held.Open();
}

TEST(SerialQueue, WhatCannotBeAskedForWantOfMemoryIsToldSo) {
  std::vector<absl::StatusCode> told;
  const auto note = [&told](const absl::Status& turn) {
    told.push_back(turn.code());
    EXPECT_EQ(RetryTimeOf(turn).has_value(), !turn.ok());
  };
  const auto wanted = []() -> absl::Status { throw std::bad_alloc(); };
  SerialQueue queue("the disk", /*most_waiting=*/1);
  queue.Add(note, SerialQueue::Places::kAll,
            {.wanted = wanted});  // in its turn
  ASSERT_TRUE(queue.WaitUntilIdle(kNever));
  HeldTask held(queue);
  queue.Add(note, SerialQueue::Places::kAll,
            {.wanted = wanted});  // for its place
  queue.Add(note);
  held.Open();
  ASSERT_TRUE(queue.WaitUntilIdle(kNever));
  EXPECT_THAT(told, ElementsAre(absl::StatusCode::kResourceExhausted,
                                absl::StatusCode::kResourceExhausted,
                                absl::StatusCode::kOk));
}

TEST(SerialQueue, HasAPlaceForWhatMayNotBeTurnedAway) {
  absl::Status waited = absl::UnknownError("not yet");
  SerialQueue queue("the disk", /*most_waiting=*/1);
  HeldTask held(queue);
  queue.Add([](const absl::Status& /*turn*/) {});
  queue.Add([&waited](const absl::Status& turn) { waited = turn; },
            SerialQueue::Places::kUnbounded);
  held.Open();
  ASSERT_TRUE(queue.WaitUntilIdle(kNever));
  EXPECT_THAT(waited, IsOk());
}

TEST(SerialQueue, DrainingTurnsAwayWhatWaitsAndLetsTheRunningOneEnd) {
  std::optional<absl::Status> waiting;
  std::optional<absl::Status> late;
  SerialQueue queue("the disk");
  HeldTask held(queue);
  queue.Add([&](const absl::Status& turn) { waiting = turn; });
  queue.StartDraining();
  ASSERT_TRUE(waiting.has_value());
  EXPECT_THAT(*waiting,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("draining")));
  queue.Add([&](const absl::Status& turn) { late = turn; });
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(queue.WaitUntilIdle(std::chrono::steady_clock::now()));
  held.Open();
  EXPECT_TRUE(queue.WaitUntilIdle(kNever));
}

TEST(SerialQueue, EndsWithTheTaskThatRuns) {
  std::optional<SerialQueue> queue(std::in_place, "the disk");
  HeldTask held(*queue);
  const auto ended =
      std::async(std::launch::async, [&queue] { queue.reset(); });
  held.Open();
  ended.wait();
}

}  // namespace
}  // namespace attention::server
