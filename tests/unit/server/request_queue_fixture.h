#ifndef ATTENTION_TESTS_UNIT_SERVER_REQUEST_QUEUE_FIXTURE_H_
#define ATTENTION_TESTS_UNIT_SERVER_REQUEST_QUEUE_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/scheduling/request_queue.h"
#include "tests/support/status_matchers.h"

namespace attention::server {

inline const FairQueue::Path kA = {"a", "a"};
inline const FairQueue::Path kB = {"b", "b"};

/// Work that is a function.
class Closure final : public QueuedWork {
 public:
  explicit Closure(std::function<void(Turn&)> run) : run_(std::move(run)) {}
  void RunQueued(Turn& turn) override { run_(turn); }

 private:
  const std::function<void(Turn&)> run_;
};

/// One worker, held up by a first request until Open(): what is added meanwhile
/// waits.
class RequestQueueTest : public ::testing::Test {
 protected:
  RequestQueueTest() { Hold(std::chrono::milliseconds(1)); }
  ~RequestQueueTest() override {
    Open();
    Drain();
  }

  /// A request that runs until Open(). Returns when it has begun.
  void Hold(std::chrono::nanoseconds cost) {
    auto began = std::make_shared<std::latch>(1);
    ASSERT_THAT(queue_->Add(std::make_shared<Closure>([this, began](Turn&) {
                              began->count_down();
                              gate_.wait();
                            }),
                            {{"first", "first"}, cost}),
                test::IsOk());
    began->wait();
  }
  /// Lets the first request end.
  void Open() {
    if (!std::exchange(open_, true)) gate_.count_down();
  }
  /// Runs what waits; nothing can be added any more.
  void Drain() {
    Open();
    queue_.reset();
  }

  /// Takes as long as it costs.
  std::shared_ptr<QueuedWork> Named(const std::string& name,
                                    std::chrono::nanoseconds cost) {
    return std::make_shared<Closure>([this, name, cost](Turn&) {
      Pass(cost);
      ran_.push_back(name);
    });
  }
  /// Adds Named(name, cost) for the only connection of `caller`.
  absl::Status Add(const std::string& caller, const std::string& name,
                   std::chrono::nanoseconds cost) {
    return queue_->Add(Named(name, cost), {{caller, caller}, cost});
  }
  /// Moves the queue's clock on.
  void Pass(std::chrono::nanoseconds time) { now_ += time.count(); }

  std::atomic<int64_t> now_{0};  // the queue's clock
  WorkerPool workers_{1};
  std::latch gate_{1};
  bool open_ = false;
  std::vector<std::string> ran_;  // by the one worker
  std::unique_ptr<RequestQueue> queue_ =
      std::make_unique<RequestQueue>(workers_, [this] {
        return RequestQueueClock::time_point(
            std::chrono::nanoseconds(now_.load()));
      });
};

}  // namespace attention::server

#endif  // ATTENTION_TESTS_UNIT_SERVER_REQUEST_QUEUE_FIXTURE_H_
