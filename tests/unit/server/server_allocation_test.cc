// Memory that runs out while a request begins or ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstdint>
#include <future>
#include <latch>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/worker_pool.h"
#include "proto/status_details.h"
#include "server/http/port/http_exchange.h"
#include "server/http/port/http_status.h"
#include "server/http/protocol/http_infer_call.h"
#include "server/scheduling/call.h"
#include "server/scheduling/request_queue.h"
#include "server/scheduling/retry_after.h"
#include "server/scheduling/serial_queue.h"
#include "server/scheduling/task.h"
#include "server/wire/status_table.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/allocation_test_services.h"
#include "tests/unit/server/failing_allocations.h"

namespace attention::server {
namespace {

constexpr std::chrono::minutes kPatience{1};
constexpr char kPeer[] = "ipv4:127.0.0.1:50000";

class ServerAllocationTest : public AllocationTestServices {
 protected:
  // What a request is answered with, if it is.
  static void ExpectAnswer(std::future<absl::Status> answer, bool good) {
    ASSERT_EQ(answer.wait_for(kPatience), std::future_status::ready);
    const absl::Status status = answer.get();
    EXPECT_TRUE(status.ok() || !good) << status;
    if (status.ok()) return;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_TRUE(RetryTimeOf(status).has_value()) << status;
  }
};

class Signal final : public QueuedWork {
 public:
  void RunQueued(Turn& /*turn*/) override { ran_.set_value(); }
  std::future<void> Ran() { return ran_.get_future(); }

 private:
  std::promise<void> ran_;  // which throws where it is set twice
};

class Held final : public QueuedWork {
 public:
  void RunQueued(Turn& /*turn*/) override {
    begun.count_down();
    open.wait();
  }
  std::latch begun{1};
  std::latch open{1};
};

TEST_F(ServerAllocationTest, WhatTheQueueHasNoMemoryForDoesNotRun) {
  const auto held = std::make_shared<Held>();
  ASSERT_THAT(queue_.Add(held, {{"held", "held"}, std::chrono::seconds(1)}),
              test::IsOk());
  held->begun.wait();
  std::vector<std::future<void>> added;
  std::vector<std::future<void>> refused;
  for (const char* party : {"held", "one", "one", "another"}) {
    ForEachAllocation([&](int64_t number) {
      const auto work = std::make_shared<Signal>();
      // A class of costs of its own each time, and names that take memory.
      const QueueEntry entry{{absl::StrCat(party, std::string(40, 'p')),
                              absl::StrCat(number, std::string(40, 'c'))},
                             std::chrono::nanoseconds(int64_t{1} << number)};
      absl::Status status;
      const Came came =
          WithoutAllocation(number, [&] { status = queue_.Add(work, entry); });
      EXPECT_THAT(status, test::IsOk());
      (came == Came::kOut ? refused : added).push_back(work->Ran());
      EXPECT_EQ(queue_.waiting(), static_cast<int64_t>(added.size()));
      return came;
    });
  }
  held->open.count_down();
  for (auto& ran : added) {
    ASSERT_EQ(ran.wait_for(kPatience), std::future_status::ready);
  }
  EXPECT_EQ(queue_.waiting(), 0);
  // Nobody has it any more.
  for (auto& ran : refused) EXPECT_THROW(ran.get(), std::future_error);
}

TEST_F(ServerAllocationTest, ATaskIsAnsweredOnce) {
  for (const size_t bytes : {1, 1000}) {
    ForEachAllocation([&](int64_t number) {
      const auto answer = std::make_shared<std::promise<absl::Status>>();
      const auto task = std::make_shared<Task>(
          Services(),
          RequestArrival{
              std::make_unique<Nothing>(),
              std::vector<grpc::Slice>{grpc::Slice(std::string(bytes, 'x'))},
              std::make_shared<const CallOrigin>(CallOrigin{.peer = kPeer})});
      Task::Done done = [answer](const Task::Outcome& outcome) {
        answer->set_value(outcome.status);
      };
      const Came came =
          WithoutAllocation(number, [&] { task->Start(std::move(done)); });
      EXPECT_NE(came, Came::kOut);
      ExpectAnswer(answer->get_future(), came == Came::kToItsEnd);
      return came;
    });
  }
}

// A turn of a request is over when this has given way.
class GivesWay final : public QueuedWork {
 public:
  void RunQueued(Turn& turn) override {
    begun.count_down();
    open.wait();
    came.set_value(WithoutAllocation(0, [&turn] { turn.GiveWay(); }));
  }
  std::latch begun{1};
  std::latch open{1};
  std::promise<Came> came;
};

TEST_F(ServerAllocationTest, ATurnBeginsWithoutMemory) {
  const auto large = std::make_shared<GivesWay>();
  ASSERT_THAT(queue_.Add(large, {{"a", "a"}, std::chrono::hours(1)}),
              test::IsOk());
  large->begun.wait();
  const auto small = std::make_shared<Signal>();
  ASSERT_THAT(queue_.Add(small, {{"b", "b"}, std::chrono::milliseconds(1)}),
              test::IsOk());
  large->open.count_down();
  EXPECT_EQ(large->came.get_future().get(), Came::kToItsEnd);
  EXPECT_EQ(small->Ran().wait_for(kPatience), std::future_status::ready);
}

class Answering final : public Call {
 public:
  using Call::Call;
  void Begin(int64_t number = 0) {
    const auto arrive = [this] {
      return RequestArrival{std::make_unique<Nothing>(), {}, origin_ptr()};
    };
    Start(arrive, number);
  }
  std::future<absl::Status> Answer(size_t number = 0) {
    return answers_.at(number).get_future();
  }

 private:
  void Emit(int64_t number, Task::Outcome outcome) override {
    answers_.at(static_cast<size_t>(number))
        .set_value(std::move(outcome.status));
  }
  std::array<std::promise<absl::Status>, 2> answers_;
};

TEST_F(ServerAllocationTest, ACallIsToldWhatBecameOfItsRequest) {
  ForEachAllocation([&](int64_t number) {
    const auto call = std::make_shared<Answering>(
        Services(), calls_, Rpc::kAttend, CallOrigin{.peer = kPeer});
    const Came came = WithoutAllocation(number, [&] { call->Begin(); });
    EXPECT_NE(came, Came::kOut);
    ExpectAnswer(call->Answer(), came == Came::kToItsEnd);
    return came;
  });
  // Those that did not begin are counted, too.
  const RequestMetrics::OfRpc counts =
      metrics_.Read().rpcs[static_cast<size_t>(Rpc::kAttend)];
  EXPECT_GT(counts.started, 0);
  EXPECT_EQ(counts.started, counts.by_code[static_cast<size_t>(
                                absl::StatusCode::kResourceExhausted)]);
}

TEST_F(ServerAllocationTest, ACallStopsItsRequests) {
  ForEachAllocation([&](int64_t number) {
    const auto held = std::make_shared<Held>();
    EXPECT_THAT(queue_.Add(held, {{"held", "held"}, std::chrono::seconds(1)}),
                test::IsOk());
    held->begun.wait();
    const auto call = std::make_shared<Answering>(
        Services(), calls_, Rpc::kAttend, CallOrigin{.peer = kPeer});
    for (const int64_t request : {0, 1}) call->Begin(request);
    const Came came =
        WithoutAllocation(number, [&] { call->Stop(StopReason::kCancelled); });
    EXPECT_NE(came, Came::kOut);
    for (const size_t request : {0, 1}) {
      EXPECT_EQ(call->Answer(request).wait_for(std::chrono::seconds(0)),
                std::future_status::ready);
    }
    held->open.count_down();
    return came;
  });
}

class Told final : public DrainableCall {
 public:
  void OnDrain() override { ++times; }
  void OnDrainEnd() override { ++times; }
  void OnCallersChanged() override { ++times; }
  int times = 0;
};

TEST_F(ServerAllocationTest, CallsAreToldOfADrainWithoutMemory) {
  const std::array calls = {std::make_shared<Told>(), std::make_shared<Told>()};
  for (const auto& call : calls) calls_.Add(call);
  const Came came = WithoutAllocation(0, [this] {
    calls_.TellCallersChanged();
    calls_.StartDrain();
    calls_.EndDrain();
  });
  EXPECT_EQ(came, Came::kToItsEnd);
  for (const auto& call : calls) EXPECT_EQ(call->times, 3);
}

TEST_F(ServerAllocationTest, WhatWaitsForItsTurnIsToldOfADrain) {
  ForEachAllocation([](int64_t number) {
    std::promise<void> begun;
    std::promise<void> open;
    int told = 0;
    SerialQueue queue("the disk");
    queue.Add([&](const absl::Status& /*turn*/) {
      begun.set_value();
      open.get_future().wait();
    });
    begun.get_future().wait();
    queue.Add([&told](const absl::Status& turn) { told += turn.ok() ? 0 : 1; });
    const Came came =
        WithoutAllocation(number, [&queue] { queue.StartDraining(); });
    EXPECT_NE(came, Came::kOut);
    EXPECT_EQ(told, 1);
    open.set_value();
    return came;
  });
}

// Where it is the last that is done for a call.
TEST_F(ServerAllocationTest, AStatusIsSaidWithoutItsMessage) {
  const absl::Status busy = RetryAfter(
      absl::ResourceExhaustedError("a message that takes memory of its own"),
      std::chrono::seconds(1));
  ForEachAllocation([&](int64_t number) {
    grpc::Status said;
    const Came came =
        WithoutAllocation(number, [&] { said = ToGrpcStatus(busy); });
    EXPECT_NE(came, Came::kOut);
    EXPECT_EQ(said.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    return came;
  });
  ForEachAllocation([&](int64_t number) {
    HttpReply said;
    const Came came =
        WithoutAllocation(number, [&] { said = ErrorReply(busy); });
    EXPECT_NE(came, Came::kOut);
    EXPECT_EQ(said.status, 429);
    return came;
  });
}

class HttpAllocationTest : public ServerAllocationTest,
                           public ::testing::WithParamInterface<bool> {};

// One that is quick is answered on this thread, too.
INSTANTIATE_TEST_SUITE_P(Is, HttpAllocationTest, ::testing::Bool(),
                         [](const auto& quick) {
                           return quick.param ? "Quick" : "Queued";
                         });

TEST_P(HttpAllocationTest, ACallThatCannotBeginIsLeft) {
  const auto clock = std::make_shared<boost::asio::thread_pool>(1);
  ForEachAllocation([&](int64_t number) {
    const auto replied = std::make_shared<std::promise<void>>();
    const auto exchange = std::make_shared<HttpExchange>(
        HttpRequest{"POST", "/v2"},
        [replied](const HttpReply& /*reply*/) { replied->set_value(); });
    const auto reply = std::make_shared<JsonInferReply>();
    auto operation = std::make_unique<Nothing>(/*quick=*/GetParam());
    CallOrigin origin{.peer = kPeer,
                      .deadline = CallOrigin::Clock::now() + kPatience};
    const Came came = WithoutAllocation(number, [&] {
      HttpInferCall::Begin(Services(), calls_, std::move(origin),
                           std::move(operation), exchange, reply, clock);
    });
    if (came != Came::kOut) {
      EXPECT_EQ(replied->get_future().wait_for(kPatience),
                std::future_status::ready);
    }
    EXPECT_TRUE(
        calls_.WaitUntilNone(std::chrono::steady_clock::now() + kPatience));
    return came;
  });
  clock->stop();
  clock->join();
}

// Its connection, which reads no request before the reply, then ends.
TEST(HttpExchangeAllocationTest, AReplyThatCannotBeDeliveredIsLost) {
  const auto deliver = [](const HttpReply&) { throw std::bad_alloc(); };
  HttpExchange lost({}, deliver);
  EXPECT_FALSE(lost.IsLost());
  lost.Reply({});
  EXPECT_TRUE(lost.IsLost());
  HttpExchange delivered({}, [](const HttpReply&) {});
  delivered.Reply({});
  EXPECT_FALSE(delivered.IsLost());
}

}  // namespace
}  // namespace attention::server
