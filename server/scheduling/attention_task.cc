#include "server/scheduling/attention_task.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

// The one exception that running out of memory in a library can raise here; it
// ends the request and not the process.
template <typename Function>
auto WithoutBadAlloc(Function function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the server is out of memory");
  }
}

std::string Shapes(const AttentionProblem& problem) {
  std::string shapes = ShapeToString(problem.query.shape);
  for (const KeyValueBlock& block : problem.key_value) {
    absl::StrAppend(&shapes, " ", ShapeToString(block.key.shape), " ",
                    ShapeToString(block.value.shape));
  }
  return shapes;
}

}  // namespace

AttentionTask::AttentionTask(const TaskServices& services,
                             RequestArrival arrival)
    : services_(services),
      arrival_(std::move(arrival)),
      arrival_time_(std::chrono::steady_clock::now()) {
  record_.peer = arrival_.peer;
}

void AttentionTask::Start(Done done) {
  done_ = std::move(done);
  StopIfLate();
  const absl::Status status = stop_.stop_requested()
                                  ? StopStatus()
                                  : WithoutBadAlloc([&] { return Prepare(); });
  facts_.decode_time = SinceArrival();
  if (!status.ok()) {
    record_.refused = true;
    Finish(status);
    return;
  }
  if (services_.engine.IsQuick(*problem_)) {
    ComputeAndFinish();
    return;
  }
  services_.engine.workers().Post(
      [self = shared_from_this()] { self->ComputeAndFinish(); });
}

absl::Status AttentionTask::Prepare() {
  WireRequest& wire = *arrival_.wire;
  int64_t message_bytes = 0;
  for (const grpc::Slice& slice : arrival_.message) {
    message_bytes += static_cast<int64_t>(slice.size());
  }
  const absl::StatusOr<AttentionProblem> problem =
      wire.Decode(std::move(arrival_.message));
  record_.id = wire.id();
  if (!problem.ok()) return problem.status();
  if (RequestRecord::Wanted()) record_.shapes = Shapes(*problem);
  absl::StatusOr<ValidatedProblem> valid = Validate(*problem);
  if (!valid.ok()) return valid.status();
  problem_ = *std::move(valid);

  // Sizes are checked before anything of that size is allocated: a width of
  // 2^40 beside a length of 0 is legal on paper.
  absl::Status status = wire.PlanReply(*problem_, services_.max_response_bytes);
  if (!status.ok()) return status;
  absl::StatusOr<Admission::Ticket> ticket =
      services_.admission.Admit(message_bytes + wire.ReplyBytes());
  if (!ticket.ok()) return ticket.status();
  ticket_ = *std::move(ticket);
  // A request that is alone has its large tensors copied by all workers. Beside
  // others it lets go of its message at once: while it waits, the next messages
  // are read into that memory.
  if (services_.admission.requests() > 1) wire.Gather(nullptr);
  return absl::OkStatus();
}

void AttentionTask::ComputeAndFinish() {
  facts_.queue_time = SinceArrival();
  StopIfLate();
  const absl::Status status =
      stop_.stop_requested() ? StopStatus() : WithoutBadAlloc([&] {
        arrival_.wire->Gather(&services_.engine.workers());
        facts_.gather_time = SinceArrival() - facts_.queue_time;
        return Compute();
      });
  facts_.compute_time = SinceArrival() - facts_.queue_time - facts_.gather_time;
  if (status.ok()) {
    Finish(Encode());
    return;
  }
  // A stopped engine says CANCELLED; the caller is told why.
  Finish(status.code() == absl::StatusCode::kCancelled ? StopStatus() : status);
}

absl::Status AttentionTask::Compute() {
  // Not before: what waits in the queue holds no memory for results.
  if (absl::Status memory = arrival_.wire->AllocateReply(); !memory.ok()) {
    return memory;
  }
  AttentionJob job;
  job.problem = &*problem_;
  job.outputs = arrival_.wire->Outputs();
  job.stop = stop_.get_token();
  absl::Status status = services_.engine.Run(job);
  facts_.backend = static_cast<std::string>(job.backend);
  facts_.kernel = static_cast<std::string>(job.kernel);
  return status;
}

absl::StatusOr<grpc::ByteBuffer> AttentionTask::Encode() {
  const std::chrono::nanoseconds begin = SinceArrival();
  absl::StatusOr<grpc::ByteBuffer> reply =
      WithoutBadAlloc([&] { return arrival_.wire->Encode(facts_); });
  facts_.encode_time = SinceArrival() - begin;
  return reply;
}

void AttentionTask::Finish(absl::StatusOr<grpc::ByteBuffer> reply) {
  record_.backend = facts_.backend;
  record_.kernel = facts_.kernel;
  record_.queue_time = facts_.queue_time;
  record_.compute_time = facts_.compute_time;
  record_.status = reply.status();
  record_.Log();
  arrival_.wire->Finished(facts_, reply.status());

  Outcome outcome;
  outcome.status = reply.status();
  outcome.id = std::move(record_.id);
  if (reply.ok()) {
    outcome.reply.Swap(&*reply);
    outcome.ticket = std::move(ticket_);
  } else {
    ticket_ = Admission::Ticket();
  }
  // Whoever is called may keep the task: let go of all that is large.
  problem_.reset();
  arrival_.wire.reset();
  const Done done = std::exchange(done_, nullptr);
  done(std::move(outcome));
}

void AttentionTask::Stop(StopReason reason) {
  StopReason none = StopReason::kNone;
  stop_reason_.compare_exchange_strong(none, reason);
  stop_.request_stop();
}

void AttentionTask::StopIfLate() {
  if (std::chrono::system_clock::now() >= arrival_.deadline) {
    Stop(StopReason::kDeadline);
  }
}

absl::Status AttentionTask::StopStatus() const {
  switch (stop_reason_.load()) {
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

std::chrono::nanoseconds AttentionTask::SinceArrival() const {
  return std::chrono::steady_clock::now() - arrival_time_;
}

}  // namespace attention::server
