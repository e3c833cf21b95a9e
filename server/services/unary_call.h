#ifndef ATTENTION_SERVER_SERVICES_UNARY_CALL_H_
#define ATTENTION_SERVER_SERVICES_UNARY_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "server/scheduling/active_calls.h"
#include "server/scheduling/task.h"

namespace attention::server {

/// The slices of a message that gRPC has handed over; `message` is empty after
/// it.
std::vector<grpc::Slice> TakeSlices(grpc::ByteBuffer& message);

/// One unary call of an operation. It lives from Begin() until gRPC is
/// done with it and its task has returned, whichever is later.
class UnaryCall final : public grpc::ServerUnaryReactor,
                        public DrainableCall,
                        public std::enable_shared_from_this<UnaryCall> {
 public:
  /// Starts the operation. `request` is emptied; context and
  /// response live until the call is done. The result is what the service's
  /// method returns to gRPC.
  static grpc::ServerUnaryReactor* Begin(const TaskServices& services,
                                         ActiveCalls& calls,
                                         std::unique_ptr<Operation> operation,
                                         grpc::CallbackServerContext& context,
                                         grpc::ByteBuffer& request,
                                         grpc::ByteBuffer& response);

  UnaryCall(const TaskServices& services, ActiveCalls& calls,
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
  // What is left to do where the reply came before Begin() ended.
  grpc::ServerUnaryReactor* ReplyAtOnce(grpc::CallbackServerContext& context);

  ActiveCalls& calls_;
  grpc::ByteBuffer& response_;
  const std::chrono::system_clock::time_point deadline_;
  const std::shared_ptr<Task> task_;
  Admission::Ticket ticket_;  // until the reply is out
  grpc::Status status_;       // that the call ends with
  std::atomic<Progress> progress_{Progress::kBeginning};
};

/// Why a call that gRPC says is cancelled was: its deadline, or its caller.
StopReason WhyCancelled(std::chrono::system_clock::time_point deadline);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_UNARY_CALL_H_
