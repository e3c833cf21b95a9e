#include "server/request/attention_operation.h"

#include <cstdint>
#include <new>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "server/base/out_of_memory.h"
#include "server/request/region_checks.h"
#include "server/request/scoring_names.h"

namespace attention::server {
namespace {

// Of each problem of a batch, until it is computed.
constexpr size_t kProblemBytes =
    sizeof(ValidatedProblem) + sizeof(AttentionJob);

// Results that are not sent may be of any size.
constexpr int64_t kMoreThanAnyMemory = int64_t{1} << 48;

std::string Shapes(const AttentionProblem& problem) {
  std::string shapes = ShapeToString(problem.query.shape);
  for (const KeyValueBlock& block : problem.key_value) {
    absl::StrAppend(&shapes, " ", ShapeToString(block.key.shape), " ",
                    ShapeToString(block.value.shape));
  }
  return shapes;
}

}  // namespace

absl::Status AttentionOperation::Decode(ReceivedMessage message, HoldBytes hold,
                                        RequestFacts& facts) {
  absl::StatusOr<AttentionRequest> request =
      wire_->Decode(std::move(message), hold);
  facts.id = wire_->id();
  facts.model = wire_->model();
  SequenceKeys::EndOlder(resident_, wire_->sequence_life());
  if (!request.ok()) return request.status();
  request_.emplace(*std::move(request));
  facts.tensors = request_->tensors_by_type;
  facts.scoring = request_->problem.scoring.index();
  facts.scoring_name = ScoringNames()[facts.scoring].model;
  if (WantsDetails()) facts.details = Shapes(request_->problem);
  return absl::OkStatus();
}

// Sizes are checked before anything of that size is allocated: a width of 2^40
// beside a length of 0 is legal on paper.
absl::Status AttentionOperation::PlanResults() {
  absl::StatusOr<ValidatedBatch> valid = ValidateBatch(request_->problem);
  if (!valid.ok()) return valid.status();
  batch_ = *std::move(valid);
  // When sequences have been read, shapes are checked anew, not its elements.
  request_->problem.attend_mask_checked = true;
  results_.emplace(request_->results, *batch_);
  absl::Status status = results_->CheckFit(
      wire_->BytesBeside(results_->SentBytes()), limits_.max_response_bytes);
  if (status.ok()) {
    status = CheckLimits(request_->problem, *batch_, *results_, limits_);
  }
  if (status.ok()) status = CheckResultsApart(*request_);
  return status;
}

absl::StatusOr<OperationNeeds> AttentionOperation::Plan(RequestFacts& facts) {
  absl::Status status;
  if (!request_->sequences.empty()) {
    keys_.emplace(resident_);
    status = keys_->Plan(*request_);
  }
  if (status.ok()) status = PlanResults();
  if (!status.ok()) return status;
  for (const ValidatedProblem& problem : batch_->problems) {
    facts.batch_entries += problem.batch;
  }
  OperationNeeds needs;
  // It never fits, and what else it needs is more than numbers hold.
  if (results_->Bytes() > kMoreThanAnyMemory) {
    needs.reply_bytes = kMoreThanAnyMemory;
    return needs;
  }
  needs.reply_bytes =
      results_->Bytes() + wire_->BytesBeside(results_->SentBytes());
  const absl::Span<const ValidatedProblem> problems = batch_->problems;
  needs.work = {static_cast<int>(request_->problem.scoring.index()),
                attention::Work(problems)};
  // A quick one is computed on the thread that brought it, which must not wait.
  needs.quick = engine_.IsQuick(problems) && !(keys_ && keys_->waits());
  // A quick one fits into what the thread keeps.
  if (!needs.quick) {
    needs.working_bytes = engine_.WorkingBytes(problems) +
                          static_cast<int64_t>(problems.size() * kProblemBytes);
  }
  if (keys_) needs.working_bytes += SequenceKeys::TableBytes(*batch_);
  return needs;
}

// What the request waited for is there now, and may be more than was planned.
absl::Status AttentionOperation::ReadSequences() {
  const int64_t planned = results_->Bytes();
  if (absl::Status read = keys_->Read(*request_); !read.ok()) return read;
  // What a region lost while it was copied must not stay as keys of zeros.
  if (absl::Status intact = CheckIntact(*request_); !intact.ok()) return intact;
  absl::Status status = PlanResults();
  if (status.ok() && results_->Bytes() > planned) {
    status = absl::AbortedError(
        "sequences: others were appended to while this request waited, and its "
        "results have become larger (expected a position, or nobody else who "
        "appends)");
  }
  return status;
}

absl::Status AttentionOperation::Run(const std::stop_token& stop,
                                     const Pauses& pauses,
                                     RequestFacts& facts) {
  if (!keys_) return Compute(stop, pauses, facts);
  facts.repeatable = false;  // until it is known what was appended
  const absl::Status status = WithoutBadAlloc([&] {
    absl::Status read = ReadSequences();
    return read.ok() ? Compute(stop, pauses, facts) : read;
  });
  // Else Encode() is to come.
  if (!status.ok()) EndSequences(status, facts);
  return status;
}

void AttentionOperation::EndSequences(const absl::Status& status,
                                      RequestFacts& facts) {
  const SequenceKeys::Ended ended = keys_->End(*request_, status);
  facts.repeatable = ended.repeatable;
  facts.kept = ended.kept;
}

absl::Status AttentionOperation::Compute(const std::stop_token& stop,
                                         const Pauses& pauses,
                                         RequestFacts& facts) {
  // Not before: what waits in the queue holds no memory for results.
  if (absl::Status memory = results_->Allocate(); !memory.ok()) return memory;
  const AttentionOutputs outputs = results_->Outputs();
  absl::InlinedVector<AttentionJob, 1> jobs(batch_->problems.size());
  for (size_t n = 0; n < jobs.size(); ++n) {
    jobs[n].problem = &batch_->problems[n];
    jobs[n].outputs = batch_->OutputsOf(n, outputs);
    jobs[n].stop = stop;
    jobs[n].before_tile = pauses.give_way;
    jobs[n].look = pauses.look;
  }
  absl::Status status = engine_.Run(absl::MakeSpan(jobs));
  facts.parts = 0;
  for (const AttentionJob& job : jobs) facts.parts += job.tiles_total;
  // Of a packed batch, what computed the entry with the most work.
  const auto most = absl::c_max_element(
      jobs, [](const AttentionJob& a, const AttentionJob& b) {
        return attention::Work(*a.problem) < attention::Work(*b.problem);
      });
  if (most != jobs.end()) {
    facts.backend = static_cast<std::string>(most->backend);
    facts.kernel = static_cast<std::string>(most->kernel);
  }
  return status;
}

// Whoever gets an error gets no reply: of their sequences, too, nothing has
// come then.
absl::StatusOr<ReplyBuffer> AttentionOperation::Encode(RequestFacts& facts) {
  if (!keys_) return EncodeResults(facts);
  absl::StatusOr<ReplyBuffer> reply;
  try {
    reply = EncodeResults(facts);
  } catch (const std::bad_alloc&) {
    EndSequences(OutOfMemory(), facts);
    throw;
  }
  EndSequences(reply.status(), facts);
  return reply;
}

absl::StatusOr<ReplyBuffer> AttentionOperation::EncodeResults(
    const RequestFacts& facts) {
  if (absl::Status intact = CheckIntact(*request_); !intact.ok()) return intact;
  return wire_->Encode(results_->sent(), facts);
}

}  // namespace attention::server
