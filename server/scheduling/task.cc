#include "server/scheduling/task.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/out_of_memory.h"
#include "server/request/request_builder.h"
#include "server/scheduling/retry_after.h"

namespace attention::server {
namespace {

// `facts` say, when memory has run out, whether the request is repeatable, and
// are told so.
absl::Status NoMemory(RequestFacts& facts) {
  facts.refusal = Refusal::kServerMemory;
  return facts.repeatable ? OutOfMemoryForNow() : OutOfMemory();
}

template <typename Function>
auto OrOutOfMemory(RequestFacts& facts, Function function) {
  return WithoutBadAlloc(function, [&facts] { return NoMemory(facts); });
}

}  // namespace

CallerLimits TaskServices::LimitsOf(const Caller* caller) const {
  CallerLimits limits;
  if (caller != nullptr) limits = caller->limits;
  if (limits.max_requests_per_second == 0) {
    limits.max_requests_per_second = max_requests_per_second;
  }
  if (limits.max_bytes_per_second == 0) {
    limits.max_bytes_per_second = max_bytes_per_second;
  }
  return limits;
}

Task::Task(const TaskServices& services, RequestArrival arrival)
    : services_(services),
      arrival_(std::move(arrival)),
      arrival_time_(std::chrono::steady_clock::now()) {
  const CallOrigin& origin = *arrival_.origin;
  facts_.operation = arrival_.operation->name();
  facts_.peer = origin.peer;
  facts_.trace_parent = origin.trace_parent;
  facts_.rpc = arrival_.operation->rpc();
  facts_.request_bytes = arrival_.message.bytes();
  if (origin.caller != nullptr) facts_.caller = origin.caller->name;
}

void Task::Start(Done done) {
  done_ = std::move(done);
  OrFinish([this] { Begin(); });
}

// A step that finds no memory has not handed the task on: it is in no queue.
void Task::OrFinish(absl::FunctionRef<void()> step) {
  try {
    step();
  } catch (const std::bad_alloc&) {
    if (done_ == nullptr) throw;  // by whoever was called
    Refuse(NoMemory(facts_));
  }
}

void Task::Begin() {
  if (services_.metrics != nullptr) services_.metrics->NoteArrival(facts_.rpc);
  StopIfLate();
  if (stop_.stop_requested()) return RefuseStopped();
  decoding_ = arrival_.operation->DecodingWork(facts_.request_bytes);
  if (decoding_.amount == 0) return DecodeAndGoOn(/*turn=*/nullptr);
  absl::Status status = Hold(0);
  if (status.ok()) status = Enqueue(decoding_, /*within=*/nullptr);
  if (!status.ok()) return Refuse(status);
  FinishIfStoppedInQueue();
}

// On the thread that brought the message, or on a worker in its turn.
void Task::DecodeAndGoOn(Turn* turn) {
  const std::chrono::nanoseconds begin = SinceArrival();
  absl::Status status = OrOutOfMemory(facts_, [&] { return Decode(turn); });
  facts_.decode_time = SinceArrival() - begin;
  decoded_ = true;
  // Of what was read to its end: a message that is wrong at its beginning says
  // nothing of its length.
  if (status.ok() && turn != nullptr) Learn(decoding_, *turn);
  if (status.ok() && needs_.quick) return RunAndFinish({});
  if (status.ok()) status = Enqueue(needs_.work, turn);
  if (!status.ok() && stop_.stop_requested()) return RefuseQueued();
  if (!status.ok()) return Refuse(status);
  FinishIfStoppedInQueue();
}

absl::Status Task::Decode(Turn* turn) {
  Operation& operation = *arrival_.operation;
  absl::Status status = operation.Decode(
      std::move(arrival_.message),
      [this, turn](int64_t bytes) { return HoldWhileDecoding(bytes, turn); },
      facts_);
  // No other limit than that of memory is looked at before Plan().
  if (facts_.refusal == Refusal::kNone && absl::IsResourceExhausted(status)) {
    facts_.refusal = Refusal::kServerMemory;
    status = OrTryAgain(std::move(status));
  }
  if (!status.ok()) return status;
  absl::StatusOr<OperationNeeds> needs = operation.Plan(facts_);
  if (!needs.ok()) return needs.status();
  needs_ = *std::move(needs);
  status = Hold(needs_.working_bytes + needs_.reply_bytes);
  if (!status.ok()) return status;
  // A request that is alone has its large tensors copied by all workers. Beside
  // others it lets go of its message at once: while it waits, the next messages
  // are read into that memory.
  if (services_.admission.requests() > 1) operation.Gather(nullptr);
  return absl::OkStatus();
}

// Its message is counted with what it asks for first.
absl::Status Task::Hold(int64_t bytes) {
  if (ticket_) {
    return services_.admission.Grow(ticket_, bytes, Limits(), &facts_.refusal);
  }
  absl::StatusOr<Admission::Ticket> ticket = services_.admission.Admit(
      arrival_.origin->holder(), facts_.request_bytes + bytes, Limits(),
      &facts_.refusal);
  if (!ticket.ok()) return ticket.status();
  ticket_ = *std::move(ticket);
  return absl::OkStatus();
}

// Where it is decoded in its turn, it gives way, and looks whether it is still
// wanted.
absl::Status Task::HoldWhileDecoding(int64_t bytes, Turn* turn) {
  if (turn != nullptr) {
    turn->GiveWay();
    StopIfLate();
    if (stop_.stop_requested()) return StopStatus();
  }
  return bytes > 0 ? Hold(bytes) : absl::OkStatus();
}

absl::Status Task::Enqueue(const Work& work, const Turn* within) {
  absl::Status late = services_.queue.Add(
      shared_from_this(),
      {arrival_.origin->path(), services_.costs.Estimate(work),
       arrival_.origin->deadline, within});
  if (!late.ok()) facts_.refusal = Refusal::kTooLate;
  return late;
}

void Task::Refuse(const absl::Status& status) {
  facts_.refused = true;
  Finish(status);
}

// It has waited, and is not computed.
void Task::RefuseQueued() {
  facts_.queue_time = SinceArrival();
  RefuseStopped();
}

void Task::RefuseStopped() {
  const bool draining = stop_reason_ == StopReason::kDraining;
  facts_.refusal = draining ? Refusal::kDraining : Refusal::kNone;
  Refuse(StopStatus());
}

void Task::RunQueued(Turn& turn) {
  if (!decoded_) {
    turn.SetParts(1);
    return OrFinish([&] { DecodeAndGoOn(&turn); });
  }
  OrFinish([&] {
    RunAndFinish({.give_way =
                      [this, &turn] {
                        StopIfTooLong(turn);
                        turn.GiveWay();
                      },
                  .look = [this, &turn] { StopIfTooLong(turn); }});
  });
  turn.SetParts(facts_.parts);
  if (computed_) Learn(needs_.work, turn);
}

void Task::Learn(const Work& work, const Turn& turn) {
  IfMemoryAllows([&] {
    services_.costs.Learn(work, turn.ThreadTime(),
                          arrival_.origin->path().party);
  });
}

void Task::RunAndFinish(const Pauses& pauses) {
  StopIfLate();
  if (stop_.stop_requested()) return RefuseQueued();
  facts_.queue_time = SinceArrival();
  const absl::Status status =
      OrOutOfMemory(facts_, [&] { return Run(pauses); });
  facts_.compute_time = SinceArrival() - facts_.queue_time - facts_.gather_time;
  computed_ = status.ok();
  if (status.ok()) return Finish(Encode());
  // What was stopped says CANCELLED; the caller is told why.
  Finish(status.code() == absl::StatusCode::kCancelled ? StopStatus() : status);
}

absl::Status Task::Run(const Pauses& pauses) {
  arrival_.operation->Gather(&services_.workers);
  facts_.gather_time = SinceArrival() - facts_.queue_time;
  absl::Status status =
      arrival_.operation->Run(stop_.get_token(), pauses, facts_);
  return OrTryAgain(std::move(status), facts_.repeatable);
}

absl::StatusOr<ReplyBuffer> Task::Encode() {
  const std::chrono::nanoseconds begin = SinceArrival();
  absl::StatusOr<ReplyBuffer> reply =
      OrOutOfMemory(facts_, [&] { return arrival_.operation->Encode(facts_); });
  facts_.encode_time = SinceArrival() - begin;
  return reply;
}

void Task::Finish(absl::StatusOr<ReplyBuffer> reply) {
  if (!reply.ok() && !facts_.kept.empty()) {
    IfMemoryAllows([&] { reply = Followed(reply.status(), facts_.kept); });
  }
  facts_.status = reply.status();
  if (reply.ok()) {
    facts_.reply_bytes = static_cast<int64_t>(reply->bytes().Length());
  }
  Observe(facts_, services_.metrics);

  Outcome outcome;
  outcome.status = reply.status();
  outcome.id = std::move(facts_.id);
  if (reply.ok()) {
    outcome.reply = *std::move(reply);
    outcome.ticket = std::move(ticket_);
  } else {
    ticket_ = Admission::Ticket();
  }
  // Whoever is called may keep the task: let go of all that is large.
  arrival_.operation.reset();
  const Done done = std::exchange(done_, nullptr);
  done(std::move(outcome));
}

void Task::Stop(StopReason reason) {
  StopReason none = StopReason::kNone;
  stop_reason_.compare_exchange_strong(none, reason);
  stop_.request_stop();
  FinishIfStoppedInQueue();
}

// Whoever takes it out of the queue, a worker or this, finishes it.
void Task::FinishIfStoppedInQueue() {
  if (!stop_.stop_requested() || !services_.queue.Remove(this)) return;
  OrFinish([this] { RefuseQueued(); });
}

void Task::StopIfLate() {
  if (std::chrono::system_clock::now() >= arrival_.origin->deadline) {
    Stop(StopReason::kDeadline);
  }
}

CallerLimits Task::Limits() const {
  return services_.LimitsOf(arrival_.origin->caller.get());
}

std::chrono::nanoseconds Task::MaxComputeTime() const {
  const CallerLimits limits = Limits();
  if (limits.max_compute_time.count() == 0) return services_.max_compute_time;
  return std::min<std::chrono::nanoseconds>(limits.max_compute_time,
                                            services_.max_compute_time);
}

// While it computes. What it gives away is others' time: they could end it.
void Task::StopIfTooLong(const Turn& turn) {
  if (turn.OwnTime() > MaxComputeTime()) Stop(StopReason::kTooLong);
}

absl::Status Task::StopStatus() const {
  switch (stop_reason_.load()) {
    case StopReason::kTooLong:
      return absl::ResourceExhaustedError(
          absl::StrCat("computing was stopped after ",
                       std::chrono::duration_cast<std::chrono::milliseconds>(
                           MaxComputeTime())
                           .count(),
                       " ms (max_compute_time)"));
    case StopReason::kDeadline:
      return absl::DeadlineExceededError("the caller's deadline passed");
    case StopReason::kDraining:
      return absl::UnavailableError(
          "the server is draining and its drain time is over");
    case StopReason::kNone:
    case StopReason::kCancelled:
      break;
  }
  return absl::CancelledError("the caller cancelled the request");
}

std::chrono::nanoseconds Task::SinceArrival() const {
  return std::chrono::steady_clock::now() - arrival_time_;
}

}  // namespace attention::server
