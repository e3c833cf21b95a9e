#include "server/shards/part_operation.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/request/request_builder.h"

namespace attention::server {
namespace {

// Of the answer of another server, beside the bytes as they came: its tensors
// are copied out of them.
constexpr int64_t kCopiesOfAnswer = 2;

// What a call of another server takes, beside its answer.
constexpr int64_t kBytesOfCall = 20 << 10;

// What can be merged.
absl::Status CheckMergeable(const AttentionRequest& request) {
  const std::vector<WantedResult>& results = request.results;
  if (results.size() != 2 || results[1].result != ResultField::kLse) {
    return FieldError("return_lse",
                      "not the only result (expected return_lse, and no "
                      "others, of shards)");
  }
  const AttentionProblem& problem = request.problem;
  if (problem.query_starts) {
    return FieldError("query_starts", "given (expected none of shards)");
  }
  if (problem.empty_rows != EmptyRows::kZero) {
    return FieldError("empty_rows", "uniform (expected zero of shards)");
  }
  if (problem.dropout.training) {
    return FieldError("training", "true (expected none of shards)");
  }
  return absl::OkStatus();
}

// Where another part fails, the caller repeats this one, too, and does not know
// whether it was computed.
absl::Status CheckRepeatable(const AttentionRequest& request,
                             absl::string_view part) {
  if (request.problem.key_value.empty()) return absl::OkStatus();
  for (size_t n = 0; n < request.sequences.size(); ++n) {
    if (request.sequences[n].position) continue;
    return FieldError(
        absl::StrCat(part, ".sequences.entries[", n, "].position"),
        "missing (expected beside append: a part is repeated where another "
        "one fails)");
  }
  return absl::OkStatus();
}

// An AttendRequest as ever, whose results stay here.
class PartWire final : public AttentionWire {
 public:
  PartWire(std::shared_ptr<AttendWire> wire, ShardAnswer& answer)
      : wire_(std::move(wire)), answer_(answer) {}

  absl::StatusOr<AttentionRequest> Decode(ReceivedMessage message,
                                          HoldBytes hold) override {
    absl::StatusOr<AttentionRequest> request =
        wire_->Decode(std::move(message), hold);
    if (!request.ok()) return request;
    absl::Status status = CheckMergeable(*request);
    if (status.ok()) status = CheckRepeatable(*request, answer_.whose);
    if (!status.ok()) return status;
    return request;
  }
  const std::string& id() const override { return wire_->id(); }
  void Gather(WorkerPool* workers) override { wire_->Gather(workers); }
  int64_t OtherBytes() const override { return wire_->OtherBytes(); }

  ReplyBuffer Encode(absl::Span<Result> results,
                     const RequestFacts& facts) override {
    for (Result& result : results) {
      answer_.results.push_back(std::move(result));
    }
    answer_.backend = facts.backend;
    answer_.kernel = facts.kernel;
    answer_.queue_time = facts.queue_time;
    answer_.compute_time = facts.compute_time;
    return {};
  }

 private:
  const std::shared_ptr<AttendWire> wire_;
  ShardAnswer& answer_;
};

}  // namespace

PartOperation::PartOperation(std::shared_ptr<AttendWire> wire,
                             const Engine& engine, const RequestLimits& limits,
                             ResidentAccess resident, PartRules rules)
    : rules_(std::move(rules)),
      attention_(std::make_unique<PartWire>(std::move(wire), *rules_.answer),
                 engine, limits, std::move(resident)) {}

absl::StatusOr<OperationNeeds> PartOperation::Plan(RequestFacts& facts) {
  absl::StatusOr<OperationNeeds> needs = attention_.Plan(facts);
  if (needs.ok()) {
    needs->working_bytes += kBytesOfCall * rules_.other_answers;
    needs->reply_bytes *= 1 + kCopiesOfAnswer * rules_.other_answers;
  }
  return needs;
}

// The first that an operation is asked once it is admitted.
void PartOperation::Gather(WorkerPool* workers) {
  if (rules_.on_admitted) std::exchange(rules_.on_admitted, nullptr)();
  attention_.Gather(workers);
}

}  // namespace attention::server
