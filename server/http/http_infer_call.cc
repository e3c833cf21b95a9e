#include "server/http/http_infer_call.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/http/http_status.h"
#include "server/telemetry/trace_context.h"

namespace attention::server {

class HttpInferCall::Held {
 public:
  Held(std::shared_ptr<HttpInferCall> call, Admission::Ticket ticket)
      : call_(std::move(call)), ticket_(std::move(ticket)) {}
  ~Held() {
    ticket_ = Admission::Ticket();
    call_->calls_.Remove(call_.get());
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  const std::shared_ptr<HttpInferCall> call_;
  Admission::Ticket ticket_;
};

HttpInferCall::HttpInferCall(const TaskServices& services, ActiveCalls& calls,
                             RequestArrival arrival,
                             std::shared_ptr<HttpExchange> exchange,
                             std::shared_ptr<const JsonInferReply> reply,
                             std::shared_ptr<boost::asio::thread_pool> clock)
    : calls_(calls),
      deadline_(arrival.deadline),
      trace_parent_(arrival.trace_parent),
      exchange_(std::move(exchange)),
      reply_(std::move(reply)),
      task_(std::make_shared<Task>(services, std::move(arrival))),
      clock_(std::move(clock)),
      timer_(*clock_) {}

void HttpInferCall::Begin(const TaskServices& services, ActiveCalls& calls,
                          RequestArrival arrival,
                          std::shared_ptr<HttpExchange> exchange,
                          std::shared_ptr<const JsonInferReply> reply,
                          std::shared_ptr<boost::asio::thread_pool> clock) {
  auto call = std::make_shared<HttpInferCall>(
      services, calls, std::move(arrival), std::move(exchange),
      std::move(reply), std::move(clock));
  calls.Add(call);
  call->StopAtDeadline();
  call->exchange_->OnGone(
      [task = call->task_] { task->Stop(StopReason::kCancelled); });
  call->task_->Start(
      [call](Task::Outcome outcome) { call->Reply(std::move(outcome)); });
}

void HttpInferCall::StopAtDeadline() {
  using std::chrono::system_clock;
  if (deadline_ == system_clock::time_point::max()) return;
  timer_.expires_after(deadline_ - system_clock::now());
  timer_.async_wait([call = weak_from_this()](const auto& error) {
    const auto self = call.lock();
    if (!error && self != nullptr) self->task_->Stop(StopReason::kDeadline);
  });
}

void HttpInferCall::Reply(Task::Outcome outcome) {
  timer_.cancel();
  HttpReply reply;
  if (!outcome.status.ok()) {
    reply = ErrorReply(outcome.status);
  } else {
    (void)outcome.reply.Dump(&reply.pieces);
    if (reply_->json_bytes) {
      reply.content_type = "application/octet-stream";
      reply.headers.emplace_back(kJsonLengthHeader,
                                 absl::StrCat(*reply_->json_bytes));
    }
  }
  if (!trace_parent_.empty()) {
    reply.headers.emplace_back(kTraceParent, trace_parent_);
  }
  reply.held =
      std::make_shared<Held>(shared_from_this(), std::move(outcome.ticket));
  exchange_->Reply(std::move(reply));
}

}  // namespace attention::server
