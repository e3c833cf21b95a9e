#include "server/services/attend_stream.h"

#include <grpcpp/server_context.h>

#include <utility>
#include <vector>

#include "server/services/attend_call.h"
#include "server/wire/reply_encoder.h"
#include "server/wire/status_table.h"

namespace attention::server {

AttendStream::AttendStream(const AttendServices& services, ActiveCalls& calls,
                           int64_t max_in_flight,
                           grpc::CallbackServerContext& context)
    : services_(services),
      calls_(calls),
      max_in_flight_(max_in_flight),
      deadline_(context.deadline()),
      peer_(context.peer()) {}

AttendStream::Reactor* AttendStream::Begin(
    const AttendServices& services, ActiveCalls& calls, int64_t max_in_flight,
    grpc::CallbackServerContext& context) {
  auto stream =
      std::make_shared<AttendStream>(services, calls, max_in_flight, context);
  calls.Add(stream);
  stream->Advance();
  return stream.get();
}

void AttendStream::Advance() {
  grpc::Status end;
  {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    if (broken_) {
      // What is being written stays until gRPC has given it back.
      const size_t keep = writing_ ? 1 : 0;
      in_flight_ -= static_cast<int64_t>(replies_.size() - keep);
      replies_.resize(keep);
    }
    if (!writing_ && !replies_.empty()) {
      writing_ = true;
      StartWrite(&replies_.front().message);
    }
    const bool ending = half_closed_ || draining_ || broken_;
    if (!ending && !reading_ && in_flight_ < max_in_flight_) {
      reading_ = true;
      StartRead(&incoming_);
    }
    if (!ending || in_flight_ > 0) return;
    finished_ = true;
    end = EndStatus();
  }
  // Without the lock: once it is called, gRPC may be done with the stream at
  // any time. No other thread calls it, and none begins a read or write any
  // more.
  Finish(end);
}

grpc::Status AttendStream::EndStatus() const {
  if (broken_) {
    return {grpc::StatusCode::CANCELLED, "the stream was cancelled"};
  }
  if (half_closed_) return grpc::Status::OK;
  return {grpc::StatusCode::UNAVAILABLE, "the server is draining"};
}

void AttendStream::OnReadDone(bool ok) {
  grpc::ByteBuffer message;
  bool start = false;
  {
    const std::lock_guard lock(mutex_);
    reading_ = false;
    if (!ok) half_closed_ = true;
    start = ok && !broken_ && !finished_;
    if (start) ++in_flight_;
    message.Swap(&incoming_);
  }
  if (start) StartRequest(message);
  Advance();
}

void AttendStream::StartRequest(grpc::ByteBuffer& message) {
  auto task = std::make_shared<AttendTask>(
      services_, AttendArrival{TakeSlices(message), peer_, deadline_,
                               /*on_stream=*/true});
  StopReason stopped;
  {
    const std::lock_guard lock(mutex_);
    running_.insert(task);
    stopped = stopped_;
  }
  if (stopped != StopReason::kNone) task->Stop(stopped);
  task->Start([self = shared_from_this(),
               raw = task.get()](AttendTask::Outcome outcome) {
    self->OnReply(raw, std::move(outcome));
  });
}

void AttendStream::OnReply(AttendTask* task, AttendTask::Outcome outcome) {
  if (!outcome.status.ok()) {
    outcome.reply = EncodeStreamError(outcome.id, outcome.status);
  }
  {
    const std::lock_guard lock(mutex_);
    running_.erase(task->shared_from_this());
    replies_.push_back({outcome.reply, std::move(outcome.ticket)});
  }
  Advance();
}

void AttendStream::OnWriteDone(bool ok) {
  {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    replies_.pop_front();
    --in_flight_;
    if (!ok) broken_ = true;
  }
  if (!ok) StopAll(WhyCancelled(deadline_));
  Advance();
}

void AttendStream::OnCancel() {
  {
    const std::lock_guard lock(mutex_);
    broken_ = true;
  }
  StopAll(WhyCancelled(deadline_));
  Advance();
}

void AttendStream::OnDrain() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }
  Advance();
}

void AttendStream::StopAll(StopReason reason) {
  std::vector<std::shared_ptr<AttendTask>> tasks;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_ == StopReason::kNone) stopped_ = reason;
    tasks.assign(running_.begin(), running_.end());
  }
  for (const auto& task : tasks) task->Stop(reason);
}

void AttendStream::OnDone() { calls_.Remove(this); }

}  // namespace attention::server
