#ifndef ATTENTION_SERVER_SERVICES_UNARY_CALL_H_
#define ATTENTION_SERVER_SERVICES_UNARY_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/scheduling/active_calls.h"
#include "server/scheduling/task.h"
#include "server/services/caller_of_call.h"

namespace attention::server {

/// The slices of a message that gRPC has handed over; `message` is empty after
/// it.
std::vector<grpc::Slice> TakeSlices(grpc::ByteBuffer& message);

/// The trace that the caller says the call is part of (W3C's traceparent), and
/// which it gets back with the call's end; empty where it says none.
std::string TakeTraceParent(grpc::CallbackServerContext& context);

/// When a call began, and when it must have ended.
class CallTime {
 public:
  using Clock = std::chrono::system_clock;
  explicit CallTime(Clock::time_point deadline)
      : begin_(Clock::now()), deadline_(deadline) {}

  Clock::time_point deadline() const { return deadline_; }
  /// Why a call that gRPC says is cancelled was: its deadline, or its caller.
  StopReason WhyCancelled() const;
  /// Whether its caller reset it well before its deadline. A library that gives
  /// up at the deadline resets the call as well, at nearly the same time.
  bool WasReset() const;

 private:
  Clock::time_point begin_;
  Clock::time_point deadline_;
};

/// One unary call of an operation. It lives from Begin() until gRPC is
/// done with it and its task has returned, whichever is later.
class UnaryCall final : public grpc::ServerUnaryReactor,
                        public DrainableCall,
                        public std::enable_shared_from_this<UnaryCall> {
 public:
  /// Starts the operation of `caller`. `request` is emptied; context and
  /// response live until the call is done. The result is what the service's
  /// method returns to gRPC.
  static grpc::ServerUnaryReactor* Begin(const TaskServices& services,
                                         ActiveCalls& calls, CallerPtr caller,
                                         std::unique_ptr<Operation> operation,
                                         grpc::CallbackServerContext& context,
                                         grpc::ByteBuffer& request,
                                         grpc::ByteBuffer& response);

  UnaryCall(const TaskServices& services, ActiveCalls& calls, CallerPtr caller,
            std::unique_ptr<Operation> operation,
            grpc::CallbackServerContext& context, grpc::ByteBuffer& request,
            grpc::ByteBuffer& response);

  // The caller went away, or its deadline passed.
  void OnCancel() override;
  void OnDone() override;

  void OnDrain() override {}  // admission turns new requests away
  void OnDrainEnd() override { task_->Stop(StopReason::kDraining); }

 private:
  // Whether Begin() has returned when the reply comes.
  enum class Progress : uint8_t { kBeginning, kReplied, kBegun };

  void Reply(Task::Outcome outcome);
  // Finishes with status_, and ends the call where that takes too long.
  void FinishWatched();
  // What is left to do where the reply came before Begin() ended.
  grpc::ServerUnaryReactor* ReplyAtOnce(grpc::CallbackServerContext& context);

  ActiveCalls& calls_;
  grpc::CallbackServerContext& context_;  // lives until OnDone()
  grpc::ByteBuffer& response_;
  const CallTime time_;
  const std::string peer_;  // which a cancelled call has forgotten
  const std::shared_ptr<Task> task_;
  Admission::Ticket ticket_;  // until the reply is out
  ReplyWatch::Watch watch_;   // likewise
  grpc::Status status_;       // that the call ends with
  std::atomic<Progress> progress_{Progress::kBeginning};
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_UNARY_CALL_H_
