#include "server/services/unary_call.h"

#include <grpcpp/server_context.h>

#include <utility>
#include <vector>

#include "server/wire/status_table.h"

namespace attention::server {

std::vector<grpc::Slice> TakeSlices(grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  if (!message.Dump(&slices).ok()) slices.clear();
  message.Clear();
  return slices;
}

StopReason WhyCancelled(std::chrono::system_clock::time_point deadline) {
  return std::chrono::system_clock::now() >= deadline ? StopReason::kDeadline
                                                      : StopReason::kCancelled;
}

UnaryCall::UnaryCall(const TaskServices& services, ActiveCalls& calls,
                     std::unique_ptr<WireRequest> wire,
                     grpc::CallbackServerContext& context,
                     grpc::ByteBuffer& request, grpc::ByteBuffer& response)
    : calls_(calls),
      response_(response),
      deadline_(context.deadline()),
      task_(std::make_shared<AttentionTask>(
          services, RequestArrival{std::move(wire), TakeSlices(request),
                                   context.peer(), deadline_})) {}

grpc::ServerUnaryReactor* UnaryCall::Begin(const TaskServices& services,
                                           ActiveCalls& calls,
                                           std::unique_ptr<WireRequest> wire,
                                           grpc::CallbackServerContext& context,
                                           grpc::ByteBuffer& request,
                                           grpc::ByteBuffer& response) {
  auto call = std::make_shared<UnaryCall>(services, calls, std::move(wire),
                                          context, request, response);
  calls.Add(call);
  // The task keeps the call: gRPC may be done with it while Reply() returns.
  call->task_->Start([call](AttentionTask::Outcome outcome) {
    call->Reply(std::move(outcome));
  });
  return call.get();
}

void UnaryCall::Reply(AttentionTask::Outcome outcome) {
  ticket_ = std::move(outcome.ticket);
  response_.Swap(&outcome.reply);
  Finish(ToGrpcStatus(outcome.status));
}

void UnaryCall::OnCancel() { task_->Stop(WhyCancelled(deadline_)); }

void UnaryCall::OnDone() {
  ticket_ = Admission::Ticket();
  calls_.Remove(this);
}

}  // namespace attention::server
