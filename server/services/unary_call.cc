#include "server/services/unary_call.h"

#include <grpcpp/server_context.h>

#include <utility>
#include <vector>

#include "server/telemetry/trace_context.h"
#include "server/wire/status_table.h"

namespace attention::server {

namespace {

// Of a reply that need not be counted against the limits until it is out. A
// caller that takes none keeps --max-streams-per-connection of them for each of
// its connections: 2 MiB by default.
constexpr size_t kMostReplyBytesAtOnce = 8 << 10;

}  // namespace

std::vector<grpc::Slice> TakeSlices(grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  if (!message.Dump(&slices).ok()) slices.clear();
  message.Clear();
  return slices;
}

std::string TakeTraceParent(grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kTraceParent);
  if (found == context.client_metadata().end()) return "";
  std::string value(found->second.data(), found->second.size());
  if (!IsTraceParent(value)) return "";
  context.AddTrailingMetadata(kTraceParent, value);
  return value;
}

StopReason CallTime::WhyCancelled() const {
  return Clock::now() >= deadline_ ? StopReason::kDeadline
                                   : StopReason::kCancelled;
}

bool CallTime::WasReset() const {
  if (deadline_ == Clock::time_point::max()) return true;
  const std::chrono::duration<double> lived = Clock::now() - begin_;
  const std::chrono::duration<double> whole = deadline_ - begin_;
  return lived < 0.9 * whole;
}

UnaryCall::UnaryCall(const TaskServices& services, ActiveCalls& calls,
                     CallerPtr caller, std::unique_ptr<Operation> operation,
                     grpc::CallbackServerContext& context,
                     grpc::ByteBuffer& request, grpc::ByteBuffer& response)
    : calls_(calls),
      context_(context),
      response_(response),
      time_(context.deadline()),
      peer_(context.peer()),
      task_(std::make_shared<Task>(
          services, RequestArrival{std::move(operation), TakeSlices(request),
                                   peer_, std::move(caller), time_.deadline(),
                                   TakeTraceParent(context)})) {}

grpc::ServerUnaryReactor* UnaryCall::Begin(const TaskServices& services,
                                           ActiveCalls& calls, CallerPtr caller,
                                           std::unique_ptr<Operation> operation,
                                           grpc::CallbackServerContext& context,
                                           grpc::ByteBuffer& request,
                                           grpc::ByteBuffer& response) {
  // An empty message is one too; none at all is what gRPC gives where the
  // caller reset the call while its message was on its way.
  const bool arrived = request.Valid();
  auto call = std::make_shared<UnaryCall>(services, calls, std::move(caller),
                                          std::move(operation), context,
                                          request, response);
  calls.Add(call);
  if (!arrived) call->OnCancel();
  // The task keeps the call: gRPC may be done with it while Reply() returns.
  call->task_->Start(
      [call](Task::Outcome outcome) { call->Reply(std::move(outcome)); });
  const bool replied =
      call->progress_.exchange(Progress::kBegun) == Progress::kReplied;
  return replied ? call->ReplyAtOnce(context) : call.get();
}

void UnaryCall::Reply(Task::Outcome outcome) {
  ticket_ = std::move(outcome.ticket);
  response_.Swap(&outcome.reply);
  status_ = ToGrpcStatus(outcome.status);
  if (progress_.exchange(Progress::kReplied) == Progress::kBegun) {
    FinishWatched();
  }
}

grpc::ServerUnaryReactor* UnaryCall::ReplyAtOnce(
    grpc::CallbackServerContext& context) {
  if (response_.Length() > kMostReplyBytesAtOnce) {
    FinishWatched();
    return this;
  }
  // gRPC calls the OnDone of a reactor of ours on another thread, which costs
  // more than the whole of a small call; its own reactor needs none. The limits
  // are then given back before the reply is out, which is why it must be small.
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(status_);
  OnDone();
  return reactor;
}

void UnaryCall::FinishWatched() {
  watch_ = calls_.WatchReply(context_.c_call(), peer_);
  Finish(status_);
}

void UnaryCall::OnCancel() {
  if (time_.WasReset()) calls_.NoteReset(peer_);
  task_->Stop(time_.WhyCancelled());
}

void UnaryCall::OnDone() {
  watch_ = ReplyWatch::Watch();
  ticket_ = Admission::Ticket();
  calls_.Remove(this);
}

}  // namespace attention::server
