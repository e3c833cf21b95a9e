#ifndef ATTENTION_SERVER_SERVICES_UNARY_CALL_H_
#define ATTENTION_SERVER_SERVICES_UNARY_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "server/scheduling/call.h"

namespace attention::server {

/// A unary gRPC call. It lives from Begin() until gRPC is done with it and its
/// request has returned, whichever is later.
class UnaryCall final : public grpc::ServerUnaryReactor, public Call {
 public:
  /// The operation of a call of `caller`, null where everybody may call.
  using NewOperation =
      absl::FunctionRef<std::unique_ptr<Operation>(const Caller* caller)>;

  /// Starts the operation of a known caller. `request` is emptied; context and
  /// response live until the call is done; metrics count it with `rpc`. The
  /// result is what the service's method returns to gRPC.
  static grpc::ServerUnaryReactor* Begin(const TaskServices& services,
                                         ActiveCalls& calls, Rpc rpc,
                                         NewOperation new_operation,
                                         grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response);

  UnaryCall(const TaskServices& services, ActiveCalls& calls, Rpc rpc,
            CallOrigin origin, grpc::CallbackServerContext& context,
            grpc::ByteBuffer& response);

  // The caller went away, or its deadline passed.
  void OnCancel() override { Abandon(); }
  void OnDone() override;

 private:
  // Whether Begin() has returned when the reply comes.
  enum class Progress : uint8_t { kBeginning, kReplied, kBegun };

  void Emit(int64_t number, Task::Outcome outcome) override;
  // Finishes with status_, and ends the call where that takes too long.
  void FinishWatched();
  // What is left to do where the reply came before Begin() ended.
  grpc::ServerUnaryReactor* ReplyAtOnce();

  grpc::CallbackServerContext& context_;  // lives until OnDone()
  grpc::ByteBuffer& response_;
  Admission::Ticket ticket_;  // until the reply is out
  ReplyWatch::Watch watch_;   // likewise
  grpc::Status status_;       // that the call ends with
  std::atomic<Progress> progress_{Progress::kBeginning};
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_UNARY_CALL_H_
