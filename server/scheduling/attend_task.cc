#include "server/scheduling/attend_task.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/wire/problem_translation.h"

namespace attention::server {
namespace {

// The one exception that running out of memory in a library can raise here; it
// ends the request and not the process.
template <typename Function>
absl::Status WithoutBadAlloc(Function function) {
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

AttendTask::AttendTask(const AttendServices& services, AttendArrival arrival)
    : services_(services),
      arrival_(std::move(arrival)),
      arrival_time_(std::chrono::steady_clock::now()) {
  record_.peer = arrival_.peer;
}

void AttendTask::Start(Done done) {
  done_ = std::move(done);
  StopIfLate();
  const absl::Status status = stop_.stop_requested()
                                  ? StopStatus()
                                  : WithoutBadAlloc([&] { return Prepare(); });
  if (!status.ok()) {
    record_.refused = true;
    Finish(status);
    return;
  }
  services_.engine.workers().Post(
      [self = shared_from_this()] { self->ComputeAndFinish(); });
}

absl::Status AttendTask::Prepare() {
  int64_t message_bytes = 0;
  for (const grpc::Slice& slice : arrival_.message) {
    message_bytes += static_cast<int64_t>(slice.size());
  }
  absl::StatusOr<DecodedAttendRequest> request =
      DecodeAttendRequest(std::move(arrival_.message));
  if (!request.ok()) return request.status();
  request_ = *std::move(request);
  record_.id = request_.message().id();
  if (arrival_.on_stream && record_.id.empty()) {
    return absl::InvalidArgumentError(
        "id: missing (a stream's replies are told apart by it)");
  }
  const absl::StatusOr<AttentionProblem> problem = TranslateToProblem(request_);
  if (!problem.ok()) return problem.status();
  if (RequestRecord::Wanted()) record_.shapes = Shapes(*problem);
  absl::StatusOr<ValidatedProblem> valid = Validate(*problem);
  if (!valid.ok()) return valid.status();
  problem_ = *std::move(valid);

  // Sizes are checked before anything of that size is allocated: a width of
  // 2^40 beside a length of 0 is legal on paper.
  reply_.emplace(record_.id, *problem_);
  absl::Status status = reply_->CheckFits(services_.max_response_bytes);
  if (!status.ok()) return status;
  absl::StatusOr<Admission::Ticket> ticket =
      services_.admission.Admit(message_bytes + reply_->Bytes());
  if (!ticket.ok()) return ticket.status();
  ticket_ = *std::move(ticket);
  return reply_->Allocate();
}

void AttendTask::ComputeAndFinish() {
  facts_.queue_time = SinceArrival();
  const absl::Status status = WithoutBadAlloc([&] { return Compute(); });
  facts_.compute_time = SinceArrival() - facts_.queue_time;
  // A stopped engine says CANCELLED; the caller is told why.
  Finish(status.code() == absl::StatusCode::kCancelled ? StopStatus() : status);
}

absl::Status AttendTask::Compute() {
  StopIfLate();
  if (stop_.stop_requested()) return StopStatus();
  AttentionJob job;
  job.problem = &*problem_;
  job.outputs = reply_->Outputs();
  job.stop = stop_.get_token();
  absl::Status status = services_.engine.Run(job);
  facts_.backend = static_cast<std::string>(job.backend);
  facts_.kernel = static_cast<std::string>(job.kernel);
  return status;
}

void AttendTask::Finish(const absl::Status& status) {
  record_.backend = facts_.backend;
  record_.kernel = facts_.kernel;
  record_.queue_time = facts_.queue_time;
  record_.compute_time = facts_.compute_time;
  record_.status = status;
  record_.Log();

  Outcome outcome;
  outcome.status = status;
  outcome.id = std::move(record_.id);
  if (status.ok()) {
    outcome.reply = arrival_.on_stream
                        ? std::move(*reply_).BuildForStream(facts_)
                        : std::move(*reply_).Build(facts_);
    outcome.ticket = std::move(ticket_);
  } else {
    ticket_ = Admission::Ticket();
  }
  // Whoever is called may keep the task: let go of all that is large.
  reply_.reset();
  problem_.reset();
  request_ = DecodedAttendRequest();
  const Done done = std::exchange(done_, nullptr);
  done(std::move(outcome));
}

void AttendTask::Stop(StopReason reason) {
  StopReason none = StopReason::kNone;
  stop_reason_.compare_exchange_strong(none, reason);
  stop_.request_stop();
}

void AttendTask::StopIfLate() {
  if (std::chrono::system_clock::now() >= arrival_.deadline) {
    Stop(StopReason::kDeadline);
  }
}

absl::Status AttendTask::StopStatus() const {
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

std::chrono::nanoseconds AttendTask::SinceArrival() const {
  return std::chrono::steady_clock::now() - arrival_time_;
}

}  // namespace attention::server
