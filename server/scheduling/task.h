#ifndef ATTENTION_SERVER_SCHEDULING_TASK_H_
#define ATTENTION_SERVER_SCHEDULING_TASK_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/worker_pool.h"
#include "server/memory/received_slices.h"
#include "server/memory/reply_buffer.h"
#include "server/request/operation.h"
#include "server/scheduling/admission.h"
#include "server/scheduling/call_origin.h"
#include "server/scheduling/cost_model.h"
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
  /// How long one request may compute, without the time in which all
  /// workers give way in it.
  std::chrono::nanoseconds max_compute_time = std::chrono::nanoseconds::max();
  RequestMetrics* metrics = nullptr;  // null: nobody counts
  /// Quotas of callers that have none of their own; 0: none.
  int64_t max_requests_per_second = 0;
  int64_t max_bytes_per_second = 0;

  /// Those of a caller, with the quotas above where it has none; null: of
  /// everybody.
  CallerLimits LimitsOf(const Caller* caller) const;

  /// RequestMetrics::CountTurnedAway(), where somebody counts.
  void CountTurnedAway(Rpc rpc, const absl::Status& status) const {
    if (metrics != nullptr) metrics->CountTurnedAway(rpc, status);
  }
};

/// A request as it arrived.
struct RequestArrival {
  std::unique_ptr<Operation> operation;  // what reads it and does it
  ReceivedMessage message;
  std::shared_ptr<const CallOrigin> origin =
      std::make_shared<const CallOrigin>();
};

/// One request on its way from bytes to bytes, whatever it does and whatever
/// brought it: admitted by its size; decoded and planned; then run and encoded
/// on a worker when its turn comes. What is small is decoded on the thread that
/// brings it, and run there, too, where it is quick; a large message waits for
/// a turn to be decoded first.
class Task final : public QueuedWork,
                   public std::enable_shared_from_this<Task> {
 public:
  struct Outcome {
    absl::Status status;
    std::string id;     // empty where it could not be decoded
    ReplyBuffer reply;  // where status is OK
    /// What the request holds of the server's limits; keep it until the reply
    /// is out.
    Admission::Ticket ticket;
  };
  using Done = std::function<void(Outcome)>;

  Task(const TaskServices& services, RequestArrival arrival);

  /// Once. `done` is called exactly once: from within Start() where the request
  /// is refused or computed at once, else from a worker. Also where there is
  /// no memory to go on.
  void Start(Done done);

  /// From any thread, also before Start(): what waits leaves the queue and
  /// calls `done` from within, computing ends within a tile. The status tells
  /// the first reason: CANCELLED, DEADLINE_EXCEEDED or UNAVAILABLE. A request
  /// that is done by then is not affected.
  void Stop(StopReason reason);
  bool is_stopped() const { return stop_.stop_requested(); }

  void RunQueued(Turn& turn) override;

 private:
  absl::Status Hold(int64_t bytes);
  absl::Status HoldWhileDecoding(int64_t bytes, Turn* turn);
  void Begin();
  void DecodeAndGoOn(Turn* turn);
  absl::Status Decode(Turn* turn);
  absl::Status Enqueue(const Work& work, const Turn* within);
  absl::Status Run(const Pauses& pauses);
  void RunAndFinish(const Pauses& pauses);
  void OrFinish(absl::FunctionRef<void()> step);
  void Learn(const Work& work, const Turn& turn);
  void Refuse(const absl::Status& status);
  void RefuseStopped();
  void RefuseQueued();
  absl::StatusOr<ReplyBuffer> Encode();
  void Finish(absl::StatusOr<ReplyBuffer> reply);

  void StopIfLate();
  void StopIfTooLong(const Turn& turn);
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

  Work decoding_;  // of an amount of 0 where it is decoded at once
  bool decoded_ = false;
  OperationNeeds needs_;  // once it is decoded
  Admission::Ticket ticket_;
  bool computed_ = false;  // to its end
  RequestFacts facts_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_TASK_H_
