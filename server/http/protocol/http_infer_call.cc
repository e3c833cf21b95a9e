#include "server/http/protocol/http_infer_call.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "server/base/out_of_memory.h"
#include "server/http/port/http_status.h"

namespace attention::server {

class HttpInferCall::Held {
 public:
  Held(std::shared_ptr<Call> call, Admission::Ticket ticket)
      : call_(std::static_pointer_cast<HttpInferCall>(std::move(call))),
        ticket_(std::move(ticket)) {}
  ~Held() {
    ticket_ = Admission::Ticket();
    call_->Leave();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  const std::shared_ptr<HttpInferCall> call_;
  Admission::Ticket ticket_;
};

HttpInferCall::HttpInferCall(const TaskServices& services, ActiveCalls& calls,
                             CallOrigin origin,
                             std::shared_ptr<HttpExchange> exchange,
                             std::shared_ptr<const JsonInferReply> reply,
                             std::shared_ptr<boost::asio::thread_pool> clock)
    : Call(services, calls, Rpc::kModelInfer, std::move(origin)),
      exchange_(std::move(exchange)),
      reply_(std::move(reply)),
      clock_(std::move(clock)),
      timer_(*clock_) {}

void HttpInferCall::Begin(const TaskServices& services, ActiveCalls& calls,
                          CallOrigin origin,
                          std::unique_ptr<Operation> operation,
                          std::shared_ptr<HttpExchange> exchange,
                          std::shared_ptr<const JsonInferReply> reply,
                          std::shared_ptr<boost::asio::thread_pool> clock) {
  const auto call = std::make_shared<HttpInferCall>(
      services, calls, std::move(origin), std::move(exchange), std::move(reply),
      std::move(clock));
  call->Join();
  absl::Cleanup leave = [&call] { call->Leave(); };  // where memory runs out
  call->StopAtDeadline();
  call->exchange_->OnGone([weak = call->weak_from_this()] {
    const auto self = weak.lock();
    if (self != nullptr) self->Stop(StopReason::kCancelled);
  });
  std::move(leave).Cancel();
  call->Start([&] {
    std::vector<grpc::Slice> body;
    CountedBytes& received = call->exchange_->request().body;
    if (received.size() > 0) body.push_back(std::move(received).ToSlice());
    return RequestArrival{std::move(operation), std::move(body),
                          call->origin_ptr()};
  });
}

void HttpInferCall::StopAtDeadline() {
  if (origin().deadline == CallOrigin::Clock::time_point::max()) return;
  timer_.expires_after(origin().deadline - CallOrigin::Clock::now());
  timer_.async_wait([weak = weak_from_this()](const auto& error) {
    const auto self = weak.lock();
    if (!error && self != nullptr) self->Stop(StopReason::kDeadline);
  });
}

void HttpInferCall::Emit(int64_t /*number*/, Task::Outcome outcome) {
  timer_.cancel();
  const absl::Status replied = WithoutBadAlloc([&] {
    exchange_->Reply(ReplyTo(std::move(outcome)));
    return absl::OkStatus();
  });
  if (replied.ok()) return;
  exchange_->Reply(ErrorReply(replied));
  Leave();
}

HttpReply HttpInferCall::ReplyTo(Task::Outcome outcome) {
  HttpReply reply;
  if (!outcome.status.ok()) {
    reply = ErrorReply(outcome.status);
  } else {
    (void)outcome.reply.bytes().Dump(&reply.pieces);
    if (reply_->json_bytes) {
      reply.content_type = "application/octet-stream";
      reply.headers.emplace_back(kJsonLengthHeader,
                                 absl::StrCat(*reply_->json_bytes));
    }
  }
  reply.held =
      std::make_shared<Held>(shared_from_this(), std::move(outcome.ticket));
  return reply;
}

}  // namespace attention::server
