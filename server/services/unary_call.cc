#include "server/services/unary_call.h"

#include <grpcpp/server_context.h>

#include <utility>

#include "server/services/answer.h"
#include "server/services/grpc_call.h"
#include "server/wire/status_table.h"

namespace attention::server {

namespace {

// Of a reply that need not be counted against the limits until it is out. A
// caller that takes none keeps --max-streams-per-connection of them for each of
// its connections: 2 MiB by default.
constexpr size_t kMostReplyBytesAtOnce = 8 << 10;

}  // namespace

UnaryCall::UnaryCall(const TaskServices& services, ActiveCalls& calls, Rpc rpc,
                     CallOrigin origin, grpc::CallbackServerContext& context,
                     grpc::ByteBuffer& response)
    : Call(services, calls, rpc, std::move(origin)),
      context_(context),
      response_(response) {}

grpc::ServerUnaryReactor* UnaryCall::Begin(const TaskServices& services,
                                           ActiveCalls& calls, Rpc rpc,
                                           NewOperation new_operation,
                                           grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) {
  std::shared_ptr<UnaryCall> call;
  const auto make = [&](CallOrigin origin) {
    call = std::make_shared<UnaryCall>(services, calls, rpc, std::move(origin),
                                       *context, *response);
    call->Join();
    return absl::OkStatus();
  };
  const absl::Status joined = JoinCall(services, rpc, *context, make);
  if (!joined.ok()) return Answer(context, joined);
  // gRPC keeps the request until the call is done. The buffer is this call's
  // own and not constant, so its memory can go as soon as it has been read.
  auto& message = const_cast<grpc::ByteBuffer&>(*request);
  // An empty message is one too; none at all is what gRPC gives where the
  // caller reset the call while its message was on its way.
  if (!message.Valid()) call->OnCancel();
  // gRPC may be done with the call while Emit() returns: this keeps it.
  call->Start([&] {
    return RequestArrival{new_operation(call->origin().caller.get()),
                          ReceivedMessage(message), call->origin_ptr()};
  });
  const bool replied =
      call->progress_.exchange(Progress::kBegun) == Progress::kReplied;
  return replied ? call->ReplyAtOnce() : call.get();
}

void UnaryCall::Emit(int64_t /*number*/, Task::Outcome outcome) {
  ticket_ = std::move(outcome.ticket);
  response_.Swap(&outcome.reply.bytes());
  status_ = ToGrpcStatus(outcome.status);
  if (progress_.exchange(Progress::kReplied) == Progress::kBegun) {
    FinishWatched();
  }
}

grpc::ServerUnaryReactor* UnaryCall::ReplyAtOnce() {
  if (response_.Length() > kMostReplyBytesAtOnce) {
    FinishWatched();
    return this;
  }
  // gRPC calls the OnDone of a reactor of ours on another thread, which costs
  // more than the whole of a small call; its own reactor needs none. The limits
  // are then given back before the reply is out, which is why it must be small.
  grpc::ServerUnaryReactor* reactor = context_.DefaultReactor();
  reactor->Finish(std::move(status_));
  OnDone();
  return reactor;
}

void UnaryCall::FinishWatched() {
  watch_ = calls().WatchReply(context_.c_call(), origin().peer);
  Finish(std::move(status_));
}

void UnaryCall::OnDone() {
  watch_ = ReplyWatch::Watch();
  ticket_ = Admission::Ticket();
  Leave();
}

}  // namespace attention::server
