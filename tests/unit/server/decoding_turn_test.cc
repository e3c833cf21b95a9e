// Large messages are admitted and wait for a turn before they are decoded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/worker_pool.h"
#include "server/scheduling/task.h"
#include "server/wire/append_operation.h"
#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kMostTogether = 16;

struct Seen {
  std::thread::id decoder;
  bool decoded = false;
  bool quick = false;
  std::latch* gate = nullptr;  // Run() waits for it
  std::latch begun{1};         // and says before that it does
  absl::Status decoding;       // how it ends
  // Within Decode().
  std::function<absl::Status(HoldBytes)> reads;
};

// Echoes; says that long messages take time to decode.
class Echo final : public Operation {
 public:
  explicit Echo(std::shared_ptr<Seen> seen) : seen_(std::move(seen)) {}
  const char* name() const override { return "echo"; }
  Work DecodingWork(int64_t message_bytes) const override {
    if (message_bytes <= kMostTogether) return {};
    return {Work::kDecodeJson, static_cast<double>(message_bytes)};
  }
  absl::Status Decode(ReceivedMessage, HoldBytes hold, RequestFacts&) override {
    seen_->decoder = std::this_thread::get_id();
    seen_->decoded = true;
    return seen_->reads ? seen_->reads(hold) : seen_->decoding;
  }
  absl::StatusOr<OperationNeeds> Plan(RequestFacts&) override {
    return OperationNeeds{.work = {0, 1000}, .quick = seen_->quick};
  }
  void Gather(WorkerPool*) override {}
  absl::Status Run(const std::stop_token&, const Pauses&,
                   RequestFacts&) override {
    if (seen_->gate == nullptr) return absl::OkStatus();
    seen_->begun.count_down();
    seen_->gate->wait();
    return absl::OkStatus();
  }
  absl::StatusOr<ReplyBuffer> Encode(RequestFacts&) override {
    return ReplyBuffer();
  }

 private:
  const std::shared_ptr<Seen> seen_;
};

class DecodingTurnTest : public ::testing::Test {
 protected:
  std::shared_ptr<Task> Make(int64_t bytes, std::latch* gate = nullptr,
                             CallOrigin::Clock::time_point deadline =
                                 CallOrigin::Clock::time_point::max()) {
    seen_ = std::make_shared<Seen>();
    seen_->gate = gate;
    return TaskOf(std::make_unique<Echo>(seen_), bytes, deadline);
  }

  std::shared_ptr<Task> TaskOf(std::unique_ptr<Operation> operation,
                               int64_t bytes,
                               CallOrigin::Clock::time_point deadline =
                                   CallOrigin::Clock::time_point::max()) {
    std::vector<grpc::Slice> message = {
        grpc::Slice(std::string(static_cast<size_t>(bytes), 'x'))};
    return std::make_shared<Task>(
        TaskServices{.workers = workers_,
                     .admission = admission_,
                     .queue = queue_,
                     .costs = costs_,
                     .metrics = &metrics_},
        RequestArrival{std::move(operation), std::move(message),
                       std::make_shared<const CallOrigin>(
                           CallOrigin{.deadline = deadline})});
  }

  static std::future<Task::Outcome> Start(Task& task) {
    auto promise = std::make_shared<std::promise<Task::Outcome>>();
    auto future = promise->get_future();
    task.Start([promise](Task::Outcome outcome) {
      promise->set_value(std::move(outcome));
    });
    return future;
  }

  // Refusals for that reason.
  uint64_t CountOf(Refusal why) const {
    return metrics_.Read().refused[static_cast<size_t>(why)];
  }

  WorkerPool workers_{1};
  Ledger ledger_;
  Admission admission_{ledger_, 8, 1 << 20};
  CostModel costs_;
  RequestMetrics metrics_;
  std::shared_ptr<Seen> seen_;
  RequestQueue queue_{workers_};
};

TEST_F(DecodingTurnTest, WhatIsSmallIsDecodedByTheThreadThatBringsIt) {
  EXPECT_TRUE(Start(*Make(kMostTogether)).get().status.ok());
  EXPECT_EQ(seen_->decoder, std::this_thread::get_id());
}

TEST_F(DecodingTurnTest, WhatIsLargeIsDecodedByAWorker) {
  EXPECT_TRUE(Start(*Make(kMostTogether + 1)).get().status.ok());
  EXPECT_TRUE(seen_->decoded);
  EXPECT_NE(seen_->decoder, std::this_thread::get_id());
}

TEST_F(DecodingTurnTest, WhatNeverFitsIsNotDecoded) {
  EXPECT_THAT(
      Start(*Make((1 << 20) + 1)).get().status,
      StatusIs(StatusCode::kResourceExhausted, HasSubstr("never fits")));
  EXPECT_FALSE(seen_->decoded);
}

// Decoded, it would be no message.
TEST_F(DecodingTurnTest, AnAppendThatNeverFitsIsNotDecoded) {
  EXPECT_THAT(
      Start(*TaskOf(std::make_unique<AppendOperation>(ResidentAccess(), 1),
                    (1 << 20) + 1))
          .get()
          .status,
      StatusIs(StatusCode::kResourceExhausted, HasSubstr("never fits")));
}

TEST_F(DecodingTurnTest, WhatComesWhileTheServerDrainsIsNotDecoded) {
  admission_.StartDraining();
  EXPECT_THAT(Start(*Make(kMostTogether + 1)).get().status,
              StatusIs(StatusCode::kUnavailable, HasSubstr("draining")));
  EXPECT_FALSE(seen_->decoded);
}

TEST_F(DecodingTurnTest, WhatIsStoppedWhileItWaitsIsNotDecoded) {
  std::latch gate(1);
  const auto first = Make(1, &gate);
  auto runs = Start(*first);
  seen_->begun.wait();  // the only worker has it
  const auto waits = Make(kMostTogether + 1);
  auto outcome = Start(*waits);
  waits->Stop(StopReason::kCancelled);
  EXPECT_THAT(outcome.get().status,
              StatusIs(StatusCode::kCancelled, HasSubstr("cancelled")));
  gate.count_down();
  EXPECT_TRUE(runs.get().status.ok());
  EXPECT_FALSE(seen_->decoded);
  EXPECT_EQ(admission_.bytes(), 0);
}

TEST_F(DecodingTurnTest, WhatWouldBeDecodedTooLateIsRefusedAtOnce) {
  // A message of this kind takes ten seconds, and one is before it.
  costs_.Learn({Work::kDecodeJson, 100}, seconds(10), "one");
  std::latch gate(1);
  const auto first = Make(1, &gate);
  auto runs = Start(*first);
  seen_->begun.wait();  // the only worker has it
  const auto second = Make(100);
  auto waits = Start(*second);
  EXPECT_THAT(
      Start(*Make(100, nullptr, CallOrigin::Clock::now() + seconds(5)))
          .get()
          .status,
      StatusIs(StatusCode::kResourceExhausted, HasSubstr("would wait")));
  EXPECT_FALSE(seen_->decoded);
  gate.count_down();
  EXPECT_TRUE(runs.get().status.ok());
  EXPECT_TRUE(waits.get().status.ok());
}

// What computes for longer than its deadline is tried where nobody waits for
// it, whatever it took to decode.
TEST_F(DecodingTurnTest, AloneItIsTriedWhateverItCosts) {
  costs_.Learn({0, 1000}, seconds(100), "one");
  EXPECT_TRUE(Start(*Make(100, nullptr, CallOrigin::Clock::now() + seconds(10)))
                  .get()
                  .status.ok());
}

TEST_F(DecodingTurnTest, DecodingIsLearnt) {
  const Work decoding{Work::kDecodeJson, 1000};
  const auto guess = costs_.Estimate(decoding);
  EXPECT_TRUE(Start(*Make(1000)).get().status.ok());
  EXPECT_NE(costs_.Estimate(decoding), guess);
}

// One worker reads a long message, and there is no other one.
TEST_F(DecodingTurnTest, ItGivesWayToWhatIsSmall) {
  costs_.Learn({Work::kDecodeJson, 1000}, seconds(10), "one");
  costs_.Learn({0, 1000}, milliseconds(1), "one");
  const auto large = Make(1000);
  const auto seen = seen_;
  const auto small = Make(1);
  seen->reads = [&small](HoldBytes hold) {
    auto outcome = Start(*small);
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (outcome.wait_for(seconds(0)) != std::future_status::ready) {
      if (std::chrono::steady_clock::now() > end) {
        return absl::DeadlineExceededError("the small one waits");
      }
      if (absl::Status held = hold(0); !held.ok()) return held;
    }
    return outcome.get().status;
  };
  EXPECT_THAT(Start(*large).get().status, test::IsOk());
}

// A message that finds no memory may well fit later.
TEST_F(DecodingTurnTest, WhatFindsNoMemoryIsRefusedForThat) {
  const std::vector<std::function<absl::Status(HoldBytes)>> fails = {
      [](HoldBytes) -> absl::Status { throw std::bad_alloc(); },
      [](HoldBytes) { return absl::ResourceExhaustedError("none"); }};
  for (const auto& fail : fails) {
    const auto task = Make(1);
    seen_->reads = fail;
    EXPECT_EQ(Start(*task).get().status.code(), StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(CountOf(Refusal::kServerMemory), 2U);
  EXPECT_EQ(CountOf(Refusal::kTooLarge), 0U);
}

TEST_F(DecodingTurnTest, WhatIsStoppedWhileItIsDecodedEndsThere) {
  const auto stopped = Make(1000);
  seen_->reads = [&stopped](HoldBytes hold) {
    stopped->Stop(StopReason::kCancelled);
    return hold(0);
  };
  EXPECT_THAT(Start(*stopped).get().status,
              StatusIs(StatusCode::kCancelled, HasSubstr("cancelled")));
}

TEST_F(DecodingTurnTest, WhatIsStoppedBeforeItIsComputedIsARefusal) {
  const auto while_decoded = Make(1000);
  seen_->reads = [&while_decoded](HoldBytes hold) {
    while_decoded->Stop(StopReason::kDeadline);
    return hold(0);
  };
  EXPECT_FALSE(Start(*while_decoded).get().status.ok());
  EXPECT_EQ(CountOf(Refusal::kDeadline), 1U);
  const auto before_its_turn = Make(1);
  seen_->reads = [&before_its_turn](HoldBytes) {
    before_its_turn->Stop(StopReason::kDraining);
    return absl::OkStatus();
  };
  EXPECT_FALSE(Start(*before_its_turn).get().status.ok());
  EXPECT_EQ(CountOf(Refusal::kDraining), 1U);
  const auto quick = Make(1);
  seen_->quick = true;
  seen_->reads = [&quick](HoldBytes) {
    quick->Stop(StopReason::kCancelled);
    return absl::OkStatus();
  };
  EXPECT_FALSE(Start(*quick).get().status.ok());
  EXPECT_EQ(CountOf(Refusal::kCancelled), 1U);
}

// Counters must not fall.
TEST_F(DecodingTurnTest, WhatIsStoppedWhileItIsDecodedHasNoNegativeQueueTime) {
  const auto stopped = Make(1000);
  seen_->reads = [&stopped](HoldBytes hold) {
    stopped->Stop(StopReason::kCancelled);
    return hold(0);
  };
  EXPECT_FALSE(Start(*stopped).get().status.ok());
  const TimeHistogram queue = metrics_.Read().by_scoring[kMostScorings].queue;
  EXPECT_EQ(
      std::accumulate(queue.counts.begin(), queue.counts.end(), uint64_t{0}),
      1U);
  EXPECT_GE(queue.sum, 0);
}

TEST_F(DecodingTurnTest, NothingIsLearntOfAMessageThatIsWrong) {
  const Work decoding{Work::kDecodeJson, 1000};
  const auto guess = costs_.Estimate(decoding);
  const auto wrong = Make(1000);
  seen_->decoding = absl::InvalidArgumentError("wrong at its first byte");
  EXPECT_FALSE(Start(*wrong).get().status.ok());
  // The worker has come to its next turn, and done with the first.
  EXPECT_TRUE(Start(*Make(1)).get().status.ok());
  EXPECT_EQ(costs_.Estimate(decoding), guess);
}

}  // namespace
}  // namespace attention::server
