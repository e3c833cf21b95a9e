#include "server/services/attend_call.h"

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

AttendCall::AttendCall(const AttendServices& services, ActiveCalls& calls,
                       grpc::CallbackServerContext& context,
                       grpc::ByteBuffer& request, grpc::ByteBuffer& response)
    : calls_(calls),
      response_(response),
      deadline_(context.deadline()),
      task_(std::make_shared<AttendTask>(
          services, AttendArrival{TakeSlices(request), context.peer(),
                                  deadline_, /*on_stream=*/false})) {}

grpc::ServerUnaryReactor* AttendCall::Begin(
    const AttendServices& services, ActiveCalls& calls,
    grpc::CallbackServerContext& context, grpc::ByteBuffer& request,
    grpc::ByteBuffer& response) {
  auto call =
      std::make_shared<AttendCall>(services, calls, context, request, response);
  calls.Add(call);
  // The task keeps the call: gRPC may be done with it while Reply() returns.
  call->task_->Start(
      [call](AttendTask::Outcome outcome) { call->Reply(std::move(outcome)); });
  return call.get();
}

void AttendCall::Reply(AttendTask::Outcome outcome) {
  ticket_ = std::move(outcome.ticket);
  response_.Swap(&outcome.reply);
  Finish(ToGrpcStatus(outcome.status));
}

void AttendCall::OnCancel() { task_->Stop(WhyCancelled(deadline_)); }

void AttendCall::OnDone() {
  ticket_ = Admission::Ticket();
  calls_.Remove(this);
}

}  // namespace attention::server
