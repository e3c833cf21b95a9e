#ifndef ATTENTION_SERVER_SCHEDULING_ATTENTION_TASK_H_
#define ATTENTION_SERVER_SCHEDULING_ATTENTION_TASK_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/engine.h"
#include "core/validate.h"
#include "server/scheduling/admission.h"
#include "server/telemetry/request_log.h"
#include "server/wire/wire_request.h"

namespace attention::server {

/// What requests run on. The members outlive every task.
struct TaskServices {
  const Engine& engine;
  Admission& admission;
  int64_t max_response_bytes;
};

/// A request as it arrived.
struct RequestArrival {
  std::unique_ptr<WireRequest> wire;  // what reads it and writes its reply
  std::vector<grpc::Slice> message;
  std::string peer;
  std::chrono::system_clock::time_point deadline =
      std::chrono::system_clock::time_point::max();
};

enum class StopReason : uint8_t { kNone, kCancelled, kDeadline, kDraining };

/// One request on its way from bytes to bytes, for unary calls and streams of
/// every wire alike: decoded, validated, its reply's size checked, admitted,
/// all on the caller's thread; then computed and encoded on a worker, or, where
/// that costs more than computing (Engine::IsQuick), at once.
class AttentionTask : public std::enable_shared_from_this<AttentionTask> {
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

  AttentionTask(const TaskServices& services, RequestArrival arrival);

  /// Once. `done` is called exactly once: from within Start() where the request
  /// is refused or computed at once, else from a worker.
  void Start(Done done);

  /// From any thread, also before Start(): computing ends within a tile, and
  /// the status tells the first reason: CANCELLED, DEADLINE_EXCEEDED or
  /// UNAVAILABLE. A request that is done by then is not affected.
  void Stop(StopReason reason);

 private:
  absl::Status Prepare();
  void ComputeAndFinish();
  absl::Status Compute();
  absl::StatusOr<grpc::ByteBuffer> Encode();
  void Finish(absl::StatusOr<grpc::ByteBuffer> reply);

  void StopIfLate();
  absl::Status StopStatus() const;
  std::chrono::nanoseconds SinceArrival() const;

  const TaskServices services_;
  RequestArrival arrival_;
  const std::chrono::steady_clock::time_point arrival_time_;
  std::atomic<StopReason> stop_reason_{StopReason::kNone};
  std::stop_source stop_;
  Done done_;

  std::optional<ValidatedProblem> problem_;  // views of arrival_.wire's memory
  Admission::Ticket ticket_;
  RequestFacts facts_;
  RequestRecord record_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_ATTENTION_TASK_H_
