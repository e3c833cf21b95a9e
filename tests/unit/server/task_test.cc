#include "server/scheduling/task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <semaphore>
#include <utility>

#include "core/engine.h"
#include "server/request/attention_operation.h"
#include "server/wire/attend_wire.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/attend_requests.h"
#include "tests/unit/server/request_queue_fixture.h"

namespace attention::server {
namespace {

using ::attention::test::IsOk;
using ::attention::test::StatusIs;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// What tasks run on, with every tile counted and, until Open(), held up.
class TaskTest : public ::testing::Test {
 protected:
  void SetUp() override { Build(/*threads=*/2, RequestQueue::Clock::now); }

  // `now` is the queue's clock.
  void Build(int threads,
             std::function<RequestQueue::Clock::time_point()> now) {
    queue_.reset();
    engine_ = Engine::Create({.threads = threads,
                              .on_tile =
                                  [this] {
                                    ++tiles_;
                                    if (held_) {
                                      in_tile_.release();
                                      gate_.wait();
                                    }
                                  }})
                  .value();
    queue_ = std::make_unique<RequestQueue>(engine_->workers(), std::move(now));
  }

  std::unique_ptr<Operation> Attention(bool on_stream) {
    return std::make_unique<AttentionOperation>(
        std::make_unique<AttendWire>(on_stream, models_), *engine_,
        RequestLimits{max_response_bytes_, int64_t{1} << 62, int64_t{1} << 62},
        ResidentAccess{});
  }

  std::shared_ptr<Task> Make(const v1::AttendRequest& request,
                             RequestArrival arrival = {}) {
    if (arrival.operation == nullptr) {
      arrival.operation = Attention(/*on_stream=*/false);
    }
    arrival.message = OneSlice(request.SerializeAsString());
    TaskServices services{engine_->workers(), admission_, *queue_, costs_};
    services.max_compute_time = max_compute_time_;
    return std::make_shared<Task>(services, std::move(arrival));
  }

  static std::future<Task::Outcome> Start(Task& task) {
    auto promise = std::make_shared<std::promise<Task::Outcome>>();
    auto future = promise->get_future();
    task.Start([promise](Task::Outcome outcome) {
      promise->set_value(std::move(outcome));
    });
    return future;
  }

  Task::Outcome Run(const v1::AttendRequest& request,
                    RequestArrival arrival = {}) {
    return Start(*Make(request, std::move(arrival))).get();
  }

  // Starts a request and returns when it is within its first tile, where it
  // stays until Open().
  std::future<Task::Outcome> StartHeld(Task& task) {
    held_ = true;
    auto outcome = Start(task);
    in_tile_.acquire();
    return outcome;
  }
  void Open() { gate_.count_down(); }

  ModelRepository models_;

  // Many tiles on every backend: 4096 query rows, 1024 keys.
  static v1::AttendRequest LongRequest() {
    v1::AttendRequest request = SmallRequest();
    SetTensor(*request.mutable_query(), v1::DATA_TYPE_FP32, {4096, 2},
              std::string(size_t{4096} * 8, '\0'));
    v1::KeyValueTensors& key_value = *request.mutable_key_value();
    SetTensor(*key_value.mutable_key(), v1::DATA_TYPE_FP32, {1024, 2},
              std::string(size_t{1024} * 8, '\0'));
    SetTensor(*key_value.mutable_value(), v1::DATA_TYPE_FP32, {1024, 1},
              std::string(size_t{1024} * 4, '\0'));
    return request;
  }

  std::atomic<int> tiles_ = 0;
  std::atomic<bool> held_ = false;
  std::counting_semaphore<> in_tile_{0};  // every worker comes by
  std::latch gate_{1};
  Ledger ledger_;
  Admission admission_{ledger_, 100, 1 << 30};
  int64_t max_response_bytes_ = 1 << 20;
  std::chrono::nanoseconds max_compute_time_ = std::chrono::nanoseconds::max();
  CostModel costs_;
  std::atomic<RequestQueue::Clock::time_point> now_ =
      RequestQueue::Clock::time_point();  // for whoever asks for this clock
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<RequestQueue> queue_;
};

TEST_F(TaskTest, AnswersARequest) {
  const Task::Outcome outcome = Run(SmallRequest());
  ASSERT_THAT(outcome.status, IsOk());
  v1::AttendResponse response;
  ASSERT_TRUE(response.ParseFromString(Flatten(outcome.reply.bytes())));
  EXPECT_EQ(response.id(), "small");
  EXPECT_EQ(response.output().data(), Floats({4}));  // equal keys: the mean
  EXPECT_EQ(response.backend(), engine_->backends().front()->name());
  EXPECT_NE(response.kernel(), "");
  EXPECT_GT(response.queue_ns(), 0U);
  EXPECT_GT(response.compute_ns(), 0U);
}

TEST_F(TaskTest, WrapsAStreamsReply) {
  RequestArrival arrival;
  arrival.operation = Attention(/*on_stream=*/true);
  const Task::Outcome outcome = Run(SmallRequest(), std::move(arrival));
  v1::AttendStreamResponse response;
  ASSERT_TRUE(response.ParseFromString(Flatten(outcome.reply.bytes())));
  EXPECT_EQ(response.id(), "small");
  EXPECT_EQ(response.result().output().data(), Floats({4}));
}

TEST_F(TaskTest, RequiresAnIdOnAStream) {
  v1::AttendRequest request = SmallRequest();
  request.clear_id();
  RequestArrival arrival;
  arrival.operation = Attention(/*on_stream=*/true);
  EXPECT_THAT(
      Run(request, std::move(arrival)).status,
      StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("id: missing")));
  EXPECT_THAT(Run(request).status, IsOk());
}

TEST_F(TaskTest, RefusesWhatValidationRefuses) {
  v1::AttendRequest request = SmallRequest();
  request.set_softcap(-1);
  const Task::Outcome outcome = Run(request);
  EXPECT_THAT(outcome.status, StatusIs(absl::StatusCode::kInvalidArgument,
                                       StartsWith("softcap")));
  EXPECT_EQ(outcome.id, "small");
}

TEST_F(TaskTest, RefusesATooLargeReplyBeforeComputing) {
  max_response_bytes_ = 4096;
  EXPECT_THAT(
      Run(LongRequest()).status,
      StatusIs(absl::StatusCode::kResourceExhausted, StartsWith("output: ")));
  EXPECT_EQ(tiles_, 0);
  EXPECT_EQ(admission_.requests(), 0);
}

TEST_F(TaskTest, RefusesAReplyOfAStaggeringWidthBeforeAllocating) {
  v1::AttendRequest request = SmallRequest();
  SetTensor(*request.mutable_key_value()->mutable_key(), v1::DATA_TYPE_FP32,
            {0, 2}, "");
  SetTensor(*request.mutable_key_value()->mutable_value(), v1::DATA_TYPE_FP32,
            {0, int64_t{1} << 40}, "");
  EXPECT_THAT(Run(request).status,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("max_response_bytes")));
}

TEST_F(TaskTest, HoldsItsPlaceUntilTheOutcomeIsGone) {
  {
    const Task::Outcome outcome = Run(SmallRequest());
    EXPECT_EQ(admission_.requests(), 1);
    EXPECT_GT(admission_.bytes(),
              static_cast<int64_t>(SmallRequest().ByteSizeLong()));
  }
  EXPECT_EQ(admission_.requests(), 0);
}

TEST_F(TaskTest, IsRefusedWhileTheServerDrains) {
  admission_.StartDraining();
  EXPECT_THAT(Run(SmallRequest()).status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("draining")));
}

TEST_F(TaskTest, DoesNotComputeAfterItsDeadline) {
  RequestArrival arrival;
  arrival.origin = std::make_shared<const CallOrigin>(
      CallOrigin{.deadline = std::chrono::system_clock::now()});
  EXPECT_THAT(
      Run(SmallRequest(), std::move(arrival)).status,
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("deadline")));
  EXPECT_EQ(tiles_, 0);
}

TEST_F(TaskTest, DoesNotComputeWhenStoppedBeforeItStarts) {
  const auto task = Make(SmallRequest());
  task->Stop(StopReason::kCancelled);
  EXPECT_THAT(Start(*task).get().status,
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("caller")));
  EXPECT_EQ(tiles_, 0);
}

struct StopCase {
  StopReason reason;
  absl::StatusCode code;
};

class TaskStops : public TaskTest,
                  public ::testing::WithParamInterface<StopCase> {};

TEST_P(TaskStops, WithinATileAndSaysWhy) {
  const auto task = Make(LongRequest());
  auto outcome = StartHeld(*task);
  task->Stop(GetParam().reason);
  task->Stop(StopReason::kCancelled);  // the first reason counts
  Open();
  const Task::Outcome stopped = outcome.get();
  EXPECT_EQ(stopped.status.code(), GetParam().code);
  EXPECT_FALSE(stopped.reply.bytes().Valid());
  EXPECT_LE(tiles_, engine_->workers().threads());
  EXPECT_EQ(admission_.requests(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Reasons, TaskStops,
    ::testing::Values(
        StopCase{StopReason::kCancelled, absl::StatusCode::kCancelled},
        StopCase{StopReason::kDeadline, absl::StatusCode::kDeadlineExceeded},
        StopCase{StopReason::kDraining, absl::StatusCode::kUnavailable}));

TEST_F(TaskTest, AStopAfterTheEndChangesNothing) {
  const auto task = Make(SmallRequest());
  const Task::Outcome outcome = Start(*task).get();
  task->Stop(StopReason::kCancelled);
  EXPECT_THAT(outcome.status, IsOk());
}

// By the queue's clock, which a small request moves on by an hour.
TEST_F(TaskTest, TimeThatItGivesAwayIsNotItsOwn) {
  Build(/*threads=*/1, [this] { return now_.load(); });
  max_compute_time_ = std::chrono::minutes(1);
  const auto task = Make(LongRequest());
  auto outcome = StartHeld(*task);
  std::atomic<int> tiles_before = 0;
  ASSERT_THAT(queue_->Add(std::make_shared<Closure>([&](Turn&) {
                            tiles_before = tiles_.load();
                            now_ = now_.load() + std::chrono::hours(1);
                          }),
                          {kB, std::chrono::nanoseconds(1)}),
              IsOk());
  Open();
  EXPECT_THAT(outcome.get().status, IsOk());
  EXPECT_GT(tiles_before, 0);
  EXPECT_LT(tiles_before, tiles_);
}

TEST_F(TaskTest, SaysThatTheServerIsFull) {
  std::vector<Admission::Ticket> tickets;
  tickets.reserve(100);
  for (int i = 0; i < 100; ++i) {
    tickets.push_back(
        admission_.Admit({i % 2 == 0 ? "one" : "other"}, 0).value());
  }
  EXPECT_THAT(Run(SmallRequest()).status,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("max_requests_in_flight")));
}

}  // namespace
}  // namespace attention::server
