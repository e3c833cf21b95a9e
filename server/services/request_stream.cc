#include "server/services/request_stream.h"

#include <grpcpp/server_context.h>

#include <utility>

#include "server/base/out_of_memory.h"
#include "server/scheduling/retry_after.h"
#include "server/services/caller_of_call.h"
#include "server/services/grpc_call.h"
#include "server/wire/status_table.h"

namespace attention::server {
namespace {

// Of requests that wait for those before them, which nobody else counts; beyond
// it the stream is not read until one of them begins. A step of a decoder has
// some KiB.
constexpr int64_t kMostWaitingBytes = 64 << 10;

}  // namespace

RequestStream::RequestStream(const TaskServices& services, ActiveCalls& calls,
                             CallOrigin origin, StreamRules rules,
                             grpc::CallbackServerContext& context)
    : Call(services, calls, rules.rpc, std::move(origin)),
      rules_(std::move(rules)),
      context_(context),
      call_(context.c_call()),
      today_(origin_ptr()) {}

RequestStream::Reactor* RequestStream::Begin(
    const TaskServices& services, ActiveCalls& calls, StreamRules rules,
    grpc::CallbackServerContext& context) {
  const Rpc rpc = rules.rpc;
  std::shared_ptr<RequestStream> stream;
  const auto make = [&](CallOrigin origin) {
    absl::Status room = calls.CheckRoom(origin.peer);
    if (!room.ok()) return room;
    stream = std::make_shared<RequestStream>(services, calls, std::move(origin),
                                             std::move(rules), context);
    stream->Join();
    return absl::OkStatus();
  };
  const absl::Status joined = JoinCall(services, rpc, context, make);
  if (!joined.ok()) return Refuse(joined);
  // Those that changed before it was added.
  stream->OnCallersChanged();
  if (services.metrics != nullptr) {
    services.metrics->NoteStream(rpc);
  }
  stream->Advance();
  return stream.get();
}

RequestStream::Reactor* RequestStream::Refuse(const absl::Status& status) {
  class RefusedStream final : public Reactor {
   public:
    explicit RefusedStream(const grpc::Status& end) { Finish(end); }
    void OnDone() override { delete this; }
  };
  return new RefusedStream(ToGrpcStatus(status));
}

void RequestStream::Advance() {
  grpc::Status end;
  {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    if (drops_replies()) {
      // What is being written stays until gRPC has given it back.
      replies_.resize(writing_ ? 1 : 0);
    }
    if (!writing_ && !replies_.empty()) {
      writing_ = true;
      watch_ = calls().WatchReply(call_, origin().peer);
      StartWrite(&replies_.front().message.bytes());
    }
    const bool ending = half_closed_ || draining_ || broken_ || !failure_.ok();
    if (!ending && !reading_ && in_flight() < rules_.max_in_flight &&
        waiting_bytes_ <= kMostWaitingBytes) {
      reading_ = true;
      StartRead(&incoming_);
    }
    if (!ending || in_flight() > 0) return;
    finished_ = true;
    end = ToGrpcStatus(WithoutBadAlloc([this] { return EndStatus(); }));
    watch_ = calls().WatchReply(call_, origin().peer);
    if (!caller_known_) watch_.Hurry();
  }
  if (services().metrics != nullptr) {
    services().metrics->NoteStreamEnd(rules_.rpc, end.error_code());
  }
  // Without the lock: once it is called, gRPC may be done with the stream at
  // any time. No other thread calls it, and none begins a read or write any
  // more.
  Finish(std::move(end));
}

absl::Status RequestStream::EndStatus() const {
  if (broken_) return absl::CancelledError("the stream was cancelled");
  if (half_closed_ || !failure_.ok()) return failure_;
  return absl::UnavailableError("the server is draining");
}

int64_t RequestStream::in_flight() const {
  return under_way_ + static_cast<int64_t>(waiting_.size() + ready_.size() +
                                           early_.size() + replies_.size());
}

void RequestStream::OnReadDone(bool ok) {
  grpc::ByteBuffer message;
  bool start = false;
  int64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!ok) half_closed_ = true;
    start = ok && !broken_ && !finished_ && failure_.ok();
    if (start) {
      ++under_way_;
      number = next_request_++;
    } else {
      reading_ = false;
    }
    message.Swap(&incoming_);
  }
  if (start) Arrive(number, message);
  Advance();
}

void RequestStream::Arrive(int64_t number, grpc::ByteBuffer& message) {
  const auto take_in = [&] {
    SequenceStep step;
    if (rules_.step_of) step = rules_.step_of(message);
    Arrived arrived{number, ReceivedMessage(message)};
    const std::lock_guard lock(mutex_);
    Place(std::move(arrived), std::move(step));
    --under_way_;
    return absl::OkStatus();
  };
  const absl::Status taken = WithoutBadAlloc(take_in, OutOfMemoryForNow);
  {
    // Not before: another thread would read the next one, and might be first.
    const std::lock_guard lock(mutex_);
    reading_ = false;
  }
  if (!taken.ok()) RefuseAtStart(number, taken);
  StartAll();
}

void RequestStream::Place(Arrived arrived, SequenceStep step) {
  if (step.layers.empty() || order_.Add(arrived.number, std::move(step))) {
    ready_.push_back(std::move(arrived));
  } else {
    const int64_t bytes = arrived.message.bytes();
    waiting_.emplace(arrived.number, std::move(arrived.message));
    waiting_bytes_ += bytes;
  }
}

void RequestStream::LetGo(int64_t number) {
  for (const int64_t next : order_.Remove(number)) {
    const auto waiting = waiting_.find(next);
    // Where it is none, it has begun before.
    if (waiting == waiting_.end()) continue;
    waiting_bytes_ -= waiting->second.bytes();
    ready_.push_back({next, std::move(waiting->second)});
    waiting_.erase(waiting);
  }
}

void RequestStream::GiveUp(const absl::Status& why) {
  if (failure_.ok()) failure_ = why;
  order_ = SequenceOrder();
  waiting_.clear();
  waiting_bytes_ = 0;
  ready_.clear();
  early_.clear();
}

// One after the other: a request may end within its start, and let others go.
void RequestStream::StartAll() {
  std::unique_lock lock(mutex_);
  if (starting_) return;
  starting_ = true;
  while (!ready_.empty()) {
    Arrived next = std::move(ready_.front());
    ready_.pop_front();
    ++under_way_;
    lock.unlock();
    StartRequest(std::move(next));
    lock.lock();
  }
  starting_ = false;
}

void RequestStream::StartRequest(Arrived arrived) {
  std::shared_ptr<const CallOrigin> origin;
  {
    const std::lock_guard lock(mutex_);
    origin = today_;
  }
  const auto arrive = [&] {
    return RequestArrival{rules_.new_operation(origin->caller.get()),
                          std::move(arrived.message), origin};
  };
  Start(arrive, arrived.number);
}

void RequestStream::Emit(int64_t number, Task::Outcome outcome) {
  Reply reply{std::move(outcome.reply), std::move(outcome.ticket),
              outcome.status};
  const auto note = [&] {
    if (!reply.status.ok()) {
      reply.message = rules_.encode_error(outcome.id, reply.status);
    }
    const std::lock_guard lock(mutex_);
    NoteReply(number, std::move(reply));
    if (rules_.step_of) LetGo(number);
    return absl::OkStatus();
  };
  const absl::Status noted = WithoutBadAlloc(note);
  bool fails = false;  // the stream, with this reply
  {
    const std::lock_guard lock(mutex_);
    --under_way_;
    if (!noted.ok()) GiveUp(noted);
    // Once: those that are stopped emit within Stop().
    fails = !failure_.ok() && !std::exchange(stops_all_, true);
  }
  if (fails) Stop(StopReason::kCancelled);
  StartAll();
  Advance();
}

void RequestStream::NoteReply(int64_t number, Reply reply) {
  // No reply goes out any more, and the next one in order may never come.
  if (!failure_.ok()) return early_.clear();
  if (!rules_.in_order) return Queue(std::move(reply));
  early_.emplace(number, std::move(reply));
  while (!early_.empty() && early_.begin()->first == next_reply_) {
    Queue(std::move(early_.begin()->second));
    early_.erase(early_.begin());
    ++next_reply_;
  }
}

void RequestStream::Queue(Reply reply) {
  if (rules_.ends_with_error && failure_.ok()) failure_ = reply.status;
  if (failure_.ok()) replies_.push_back(std::move(reply));
}

void RequestStream::OnWriteDone(bool ok) {
  {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    watch_ = ReplyWatch::Watch();
    replies_.pop_front();
    if (!ok) broken_ = true;
  }
  if (!ok) Stop(origin().WhyCancelled());
  Advance();
}

void RequestStream::OnCancel() {
  {
    const std::lock_guard lock(mutex_);
    broken_ = true;
  }
  Abandon();
  Advance();
}

void RequestStream::OnDrain() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }
  Advance();
}

void RequestStream::OnCallersChanged() {
  if (services().callers == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    if (finished_ || broken_ || !caller_known_) return;
    const auto ask = [this] {
      absl::StatusOr<CallerPtr> caller =
          CallerOfCall(services().callers, context_);
      if (!caller.ok()) return caller.status();
      CallOrigin today = origin();
      today.caller = *std::move(caller);
      today_ = std::make_shared<const CallOrigin>(std::move(today));
      return absl::OkStatus();
    };
    absl::Status known = WithoutBadAlloc(ask, OutOfMemoryForNow);
    if (known.ok()) return;
    caller_known_ = false;
    failure_ = std::move(known);
    stops_all_ = true;
    // What is being written is waited for, but not for as long as others.
    watch_.Hurry();
  }
  Stop(StopReason::kCancelled);
  Advance();
}

void RequestStream::OnDone() {
  {
    const std::lock_guard lock(mutex_);
    watch_ = ReplyWatch::Watch();
  }
  Leave();
}

}  // namespace attention::server
