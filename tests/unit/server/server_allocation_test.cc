// Memory that runs out while a request begins: of the allocations that its
// thread makes there, the first fails, then the second, until none is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
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
#include "server/http/protocol/http_infer_call.h"
#include "server/scheduling/call.h"
#include "server/scheduling/request_queue.h"
#include "server/scheduling/task.h"
#include "tests/support/status_matchers.h"

namespace {

// How many more allocations succeed before one fails; below 0: all.
thread_local int64_t until_failure = -1;

}  // namespace

void* operator new(size_t size) {
  const bool fails = until_failure == 0;
  if (until_failure >= 0) --until_failure;
  if (fails) throw std::bad_alloc();
  void* const memory = std::malloc(std::max<size_t>(size, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace attention::server {
namespace {

constexpr int64_t kMost = 1000;  // far more than a request makes
constexpr std::chrono::minutes kPatience{1};
constexpr char kPeer[] = "ipv4:127.0.0.1:50000";

// What came of an act: it found all its memory, or one allocation failed, which
// it threw or not.
enum class Came : uint8_t { kToItsEnd, kToItsEndWithout, kOut };

// Where the allocation of that number fails, if there are so many.
Came WithoutAllocation(int64_t number, const std::function<void()>& act) {
  until_failure = number;
  try {
    act();
  } catch (const std::bad_alloc&) {
    until_failure = -1;
    return Came::kOut;
  }
  const bool failed = until_failure < 0;
  until_failure = -1;
  return failed ? Came::kToItsEndWithout : Came::kToItsEnd;
}

// Calls act(n) for each of its allocations and once more, where none fails.
void ForEachAllocation(const std::function<Came(int64_t number)>& act) {
  int64_t number = 0;
  while (act(number) != Came::kToItsEnd) {
    SCOPED_TRACE(absl::StrCat("without allocation ", number));
    ASSERT_LT(++number, kMost);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(number, 0);
}

// Does nothing, in a turn; messages of many bytes are decoded in one, too.
class Nothing final : public Operation {
 public:
  const char* name() const override { return "nothing"; }
  Work DecodingWork(int64_t message_bytes) const override {
    if (message_bytes <= 16) return {};
    return {Work::kDecodeJson, static_cast<double>(message_bytes)};
  }
  absl::Status Decode(ReceivedMessage, HoldBytes, RequestFacts&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<OperationNeeds> Plan(RequestFacts&) override {
    return OperationNeeds{.work = {0, 1000}};
  }
  void Gather(WorkerPool*) override {}
  absl::Status Run(const std::stop_token&, const Pauses&,
                   RequestFacts&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<ReplyBuffer> Encode(RequestFacts&) override {
    return ReplyBuffer();
  }
};

class ServerAllocationTest : public ::testing::Test {
 protected:
  TaskServices Services() {
    return {.workers = workers_,
            .admission = admission_,
            .queue = queue_,
            .costs = costs_,
            .metrics = &metrics_};
  }

  // What a request is answered with, if it is.
  static void ExpectAnswer(std::future<absl::Status> answer, bool good) {
    ASSERT_EQ(answer.wait_for(kPatience), std::future_status::ready);
    const absl::Status status = answer.get();
    EXPECT_TRUE(status.ok() || !good) << status;
    if (status.ok()) return;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_TRUE(RetryTimeOf(status).has_value()) << status;
  }

  WorkerPool workers_{1};
  Ledger ledger_;
  Admission admission_{ledger_, 8, 1 << 20};
  CostModel costs_;
  RequestMetrics metrics_;
  ActiveCalls calls_;
  RequestQueue queue_{workers_};
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

class Answering final : public Call {
 public:
  using Call::Call;
  void Begin() {
    Call::Start(std::make_unique<Nothing>(), std::vector<grpc::Slice>());
  }
  std::future<absl::Status> Answer() { return answer_.get_future(); }

 private:
  void Emit(int64_t /*number*/, Task::Outcome outcome) override {
    answer_.set_value(std::move(outcome.status));
  }
  std::promise<absl::Status> answer_;
};

TEST_F(ServerAllocationTest, ACallIsToldWhatBecameOfItsRequest) {
  ForEachAllocation([&](int64_t number) {
    const auto call = std::make_shared<Answering>(Services(), calls_,
                                                  CallOrigin{.peer = kPeer});
    // What makes the operation is the call's own.
    const Came came = WithoutAllocation(number + 1, [&] { call->Begin(); });
    EXPECT_NE(came, Came::kOut);
    ExpectAnswer(call->Answer(), came == Came::kToItsEnd);
    return came;
  });
}

TEST_F(ServerAllocationTest, ACallOverHttpThatCannotBeginIsLeft) {
  const auto clock = std::make_shared<boost::asio::thread_pool>(1);
  ForEachAllocation([&](int64_t number) {
    const auto replied = std::make_shared<std::promise<void>>();
    const auto exchange = std::make_shared<HttpExchange>(
        HttpRequest{"POST", "/v2"},
        [replied](const HttpReply& /*reply*/) { replied->set_value(); });
    const auto reply = std::make_shared<JsonInferReply>();
    auto operation = std::make_unique<Nothing>();
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

}  // namespace
}  // namespace attention::server
