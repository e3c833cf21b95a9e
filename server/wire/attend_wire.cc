#include "server/wire/attend_wire.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/wire/problem_translation.h"

namespace attention::server {

absl::StatusOr<AttentionProblem> AttendWire::Decode(
    std::vector<grpc::Slice> message) {
  absl::StatusOr<DecodedAttendRequest> request =
      DecodeAttendRequest(std::move(message));
  if (!request.ok()) return request.status();
  request_ = *std::move(request);
  if (on_stream_ && id().empty()) {
    return absl::InvalidArgumentError(
        "id: missing (a stream's replies are told apart by it)");
  }
  if (request_.message().has_parameter_set()) {
    absl::StatusOr<std::shared_ptr<const ParameterSet>> set =
        models_.Find(request_.message().parameter_set().name());
    if (!set.ok()) {
      return absl::Status(
          set.status().code(),
          absl::StrCat("parameter_set: ", set.status().message()));
    }
    set_ = *std::move(set);
  }
  return TranslateToProblem(request_, set_.get());
}

absl::Status AttendWire::PlanReply(const ValidatedProblem& problem,
                                   int64_t limit) {
  reply_.emplace(id(), problem);
  return reply_->CheckFits(limit);
}

absl::StatusOr<grpc::ByteBuffer> AttendWire::Encode(const RequestFacts& facts) {
  return on_stream_ ? std::move(*reply_).BuildForStream(facts)
                    : std::move(*reply_).Build(facts);
}

}  // namespace attention::server
