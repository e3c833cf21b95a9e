#ifndef ATTENTION_SERVER_SCHEDULING_TASK_H_
#define ATTENTION_SERVER_SCHEDULING_TASK_H_

#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "core/worker_pool.h"
#include "server/callers/caller.h"
#include "server/memory/received_slices.h"
#include "server/request/operation.h"
#include "server/scheduling/admission.h"
#include "server/scheduling/cost_model.h"
#include "server/scheduling/fair_queue.h"
#include "server/scheduling/request_queue.h"
#include "server/telemetry/request_facts.h"
#include "server/telemetry/request_metrics.h"

namespace attention::server {

class Callers;

/// What requests run on. The members outlive every task.
struct TaskServices {
  WorkerPool& workers;
  Admission& admission;
  RequestQueue& queue;
  CostModel& costs;
  /// Who may call; null: everybody.
  const Callers* callers = nullptr;
  /// How long one request may compute.
  std::chrono::nanoseconds max_compute_time = std::chrono::nanoseconds::max();
  RequestMetrics* metrics = nullptr;  // null: nobody counts
  /// Quotas of callers that have none of their own; 0: none.
  int64_t max_requests_per_second = 0;
  int64_t max_bytes_per_second = 0;
};

/// A request as it arrived.
struct RequestArrival {
  std::unique_ptr<Operation> operation;  // what reads it and does it
  ReceivedMessage message;
  std::string peer;
  /// Whose shares it takes; null where its peer does.
  std::shared_ptr<const Caller> caller = nullptr;
  std::chrono::system_clock::time_point deadline =
      std::chrono::system_clock::time_point::max();
  std::string trace_parent = {};  // W3C's, for the log

  const std::string& share() const {
    return caller == nullptr ? peer : caller->name;
  }
  /// Whose turns: the caller, or its address, and its connection.
  FairQueue::Path path() const;
};

enum class StopReason : uint8_t {
  kNone,
  kCancelled,
  kDeadline,
  kDraining,
  kTooLong  // beyond max_compute_time
};

/// One request on its way from bytes to bytes, whatever it does, for unary
/// calls and streams alike: decoded, planned and admitted on the caller's
/// thread; then run and encoded on a worker when its turn comes, or at once
/// where it is quick.
class Task final : public QueuedWork,
                   public std::enable_shared_from_this<Task> {
 public:
  struct Outcome {
    absl::Status status;
    std::string id;          // empty where it could not be decoded
    grpc::ByteBuffer reply;  // where status is OK
    /// What the request holds of the server's limits; keep it until the reply
    /// is out.
    Admission::Ticket ticket;
  };
  using Done = std::function<void(Outcome)>;

  Task(const TaskServices& services, RequestArrival arrival);

  /// Once. `done` is called exactly once: from within Start() where the request
  /// is refused or computed at once, else from a worker.
  void Start(Done done);

  /// From any thread, also before Start(): what waits leaves the queue and
  /// calls `done` from within, computing ends within a tile. The status tells
  /// the first reason: CANCELLED, DEADLINE_EXCEEDED or UNAVAILABLE. A request
  /// that is done by then is not affected.
  void Stop(StopReason reason);

  void RunQueued(Turn& turn) override;

 private:
  absl::Status Prepare();
  absl::Status Hold(int64_t bytes);
  absl::Status Enqueue();
  absl::Status Run(const std::function<void()>& give_way);
  void RunAndFinish(const std::function<void()>& give_way);
  absl::StatusOr<grpc::ByteBuffer> Encode();
  void Finish(absl::StatusOr<grpc::ByteBuffer> reply);

  void StopIfLate();
  void StopIfTooLong();
  void FinishIfStoppedInQueue();
  absl::Status StopStatus() const;
  CallerLimits Limits() const;
  std::chrono::nanoseconds MaxComputeTime() const;
  std::chrono::nanoseconds SinceArrival() const;

  const TaskServices services_;
  RequestArrival arrival_;
  const std::chrono::steady_clock::time_point arrival_time_;
  std::atomic<StopReason> stop_reason_{StopReason::kNone};
  std::stop_source stop_;
  Done done_;

  OperationNeeds needs_;
  Admission::Ticket ticket_;
  bool computed_ = false;  // to its end
  RequestFacts facts_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_TASK_H_
