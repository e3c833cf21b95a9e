#include "server/wire/attend_wire.h"

#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "server/base/utf8.h"
#include "server/request/request_builder.h"
#include "server/scheduling/retry_after.h"
#include "server/wire/attend_fields.h"
#include "server/wire/data_types.h"
#include "server/wire/message_pieces.h"
#include "server/wire/status_table.h"

namespace attention::server {
namespace {

// A backend's and a kernel's name with their headers, two numbers, and of each
// result the datatype, the shape and headers.
constexpr int64_t kMostFactsBytes = 256;
constexpr int64_t kMostTensorHeaderBytes = 96;
// Smaller results are copied into the text around them: one slice costs less
// than three.
constexpr int64_t kLeastBytesInASlice = 4096;

int FieldNumber(ResultField result) {
  switch (result) {
    case ResultField::kOutput:
      return v1::AttendResponse::kOutputFieldNumber;
    case ResultField::kWeights:
      return v1::AttendResponse::kWeightsFieldNumber;
    case ResultField::kLse:
      return v1::AttendResponse::kLseFieldNumber;
    case ResultField::kTopKIndices:
      return v1::AttendResponse::kTopKIndicesFieldNumber;
    case ResultField::kTopKWeights:
      return v1::AttendResponse::kTopKWeightsFieldNumber;
    case ResultField::kKeyWeights:
      return v1::AttendResponse::kKeyWeightsFieldNumber;
    case ResultField::kScores:
      return v1::AttendResponse::kScoresFieldNumber;
  }
  return 0;
}

// Everything of a result's field up to its first element.
void AppendTensorHeader(const Result& result, std::string& out) {
  std::string shape;
  for (const int64_t extent : result.shape) {
    AppendVarint(static_cast<uint64_t>(extent), shape);
  }
  std::string inner;
  AppendNumber(v1::Tensor::kDatatypeFieldNumber,
               static_cast<uint64_t>(ToWire(result.type)), inner);
  AppendBytes(v1::Tensor::kShapeFieldNumber, shape, inner);
  AppendFieldHeader(v1::Tensor::kDataFieldNumber, result.bytes, inner);
  AppendFieldHeader(FieldNumber(result.wanted.result),
                    static_cast<int64_t>(inner.size()) + result.bytes, out);
  out += inner;
}

std::string IdField(const std::string& id) {
  std::string field;
  AppendBytes(v1::AttendResponse::kIdFieldNumber, id, field);
  return field;
}

void AppendFacts(const RequestFacts& facts, std::string& out) {
  using Response = v1::AttendResponse;
  AppendBytes(Response::kBackendFieldNumber, facts.backend, out);
  AppendBytes(Response::kKernelFieldNumber, facts.kernel, out);
  AppendNumber(Response::kQueueNsFieldNumber,
               static_cast<uint64_t>(facts.queue_time.count()), out);
  AppendNumber(Response::kComputeNsFieldNumber,
               static_cast<uint64_t>(facts.compute_time.count()), out);
}

// Text, and the elements of a result behind it, if any.
struct ReplyPart {
  std::string text;
  AlignedBuffer elements;
};

ReplyBuffer Join(std::vector<ReplyPart> parts) {
  std::vector<grpc::Slice> slices;
  for (ReplyPart& part : parts) {
    slices.emplace_back(part.text);
    if (part.elements.size() > 0) {
      slices.push_back(ToSlice(std::move(part.elements)));
    }
  }
  return ToReplyBuffer(slices);
}

// What the request begins with.
absl::StatusOr<RequestBuilder> Begin(const v1::AttendRequest& message,
                                     const ModelRepository& models) {
  if (message.has_parameter_set()) {
    absl::StatusOr<std::shared_ptr<const ParameterSet>> set =
        models.Find(message.parameter_set().name());
    if (!set.ok()) return Named("parameter_set", set.status());
    return absl::StatusOr<RequestBuilder>(absl::in_place, (*set)->defaults,
                                          *set);
  }
  Scoring scoring;
  ChosenScoring(message, scoring);
  return absl::StatusOr<RequestBuilder>(absl::in_place, scoring);
}

// What the message asks for, in the reply's order.
using ResultFields = absl::InlinedVector<ResultField, std::size(kResultFields)>;
ResultFields ResultsOf(const v1::AttendRequest& message) {
  ResultFields results = {ResultField::kOutput};
  if (message.return_weights()) results.push_back(ResultField::kWeights);
  if (message.return_lse()) results.push_back(ResultField::kLse);
  if (message.has_top_k()) {
    results.push_back(ResultField::kTopKIndices);
    results.push_back(ResultField::kTopKWeights);
  }
  if (message.return_key_weights()) {
    results.push_back(ResultField::kKeyWeights);
  }
  if (message.scores() != v1::SCORES_NONE) {
    results.push_back(ResultField::kScores);
  }
  return results;
}

std::vector<SequenceLayer> SequencesOf(const v1::Sequences& message) {
  std::vector<SequenceLayer> sequences;
  for (const v1::SequenceLayer& entry : message.entries()) {
    SequenceLayer& sequence = sequences.emplace_back();
    sequence.name = entry.name();
    sequence.layer = entry.layer();
    if (entry.has_position()) sequence.position = entry.position();
  }
  return sequences;
}

absl::Status AddResults(const v1::AttendRequest& message,
                        RequestBuilder& builder) {
  absl::Status status;
  for (const ResultField result : ResultsOf(message)) {
    status.Update(builder.AddResult({result}));
  }
  return status;
}

}  // namespace

absl::StatusOr<AttentionRequest> AttendWire::Decode(ReceivedMessage message,
                                                    HoldBytes) {
  absl::StatusOr<MessageElements> elements =
      SplitMessage(std::move(message), AttendRules(), message_, pinned_);
  if (!elements.ok()) return elements.status();
  elements_ = *std::move(elements);
  if (on_stream_ && id().empty()) {
    return FieldError("id",
                      "missing (a stream's replies are told apart by it)");
  }
  if (absl::Status status = CheckId(id()); !status.ok()) return status;
  absl::StatusOr<RequestBuilder> builder = Begin(message_, models_);
  if (!builder.ok()) return builder.status();
  absl::Status status = ReadFields(message_, elements_, *builder);
  if (status.ok()) status = AddResults(message_, *builder);
  if (!status.ok()) return status;
  if (message_.has_sequences()) {
    status = builder->SetSequences(SequencesOf(message_.sequences()));
    if (!status.ok()) return status;
  } else if (message_.has_query() && !message_.has_key_value()) {
    return FieldError("key_value", "missing");
  }
  return (*std::move(builder)).Build();
}

int64_t AttendWire::OtherBytes() const {
  // The id is once in the message, once more around it on a stream.
  return 2 * static_cast<int64_t>(IdField(id()).size()) + kMostFactsBytes +
         static_cast<int64_t>(ResultsOf(message_).size()) *
             kMostTensorHeaderBytes;
}

ReplyBuffer AttendWire::Encode(absl::Span<Result> results,
                               const RequestFacts& facts) {
  const std::string id_field = IdField(id());
  std::vector<ReplyPart> parts(1);
  parts.front().text = id_field;
  for (Result& result : results) {
    std::string& text = parts.back().text;
    const bool is_copied = result.bytes < kLeastBytesInASlice;
    text.reserve(text.size() +
                 static_cast<size_t>(kMostTensorHeaderBytes + kMostFactsBytes +
                                     (is_copied ? result.bytes : 0)));
    AppendTensorHeader(result, text);
    if (is_copied) {
      text.append(reinterpret_cast<const char*>(result.buffer.data()),
                  static_cast<size_t>(result.bytes));
    } else {
      parts.back().elements = std::move(result.buffer);
      parts.emplace_back();
    }
  }
  AppendFacts(facts, parts.back().text);
  if (!on_stream_) return Join(std::move(parts));
  int64_t bytes = 0;
  for (const ReplyPart& part : parts) {
    bytes += static_cast<int64_t>(part.text.size()) + part.elements.size();
  }
  // The id has the same field number in both messages.
  static_assert(static_cast<int>(v1::AttendStreamResponse::kIdFieldNumber) ==
                static_cast<int>(v1::AttendResponse::kIdFieldNumber));
  parts.front().text = absl::StrCat(
      id_field,
      FieldHeader(v1::AttendStreamResponse::kResultFieldNumber, bytes),
      parts.front().text);
  return Join(std::move(parts));
}

ReplyBuffer EncodeStreamError(const std::string& id,
                              const absl::Status& status) {
  const grpc::Status wire = ToGrpcStatus(status);
  v1::AttendStreamResponse response;
  // It may be the id that is refused for its length.
  response.set_id(TruncateUtf8(id, kMostIdBytes));
  response.mutable_error()->set_code(static_cast<int>(wire.error_code()));
  response.mutable_error()->set_message(wire.error_message());
  if (const auto time = RetryTimeOf(status)) {
    response.mutable_error()->set_retry_after_ms(time->count());
  }
  const grpc::Slice slice(response.SerializeAsString());
  return {&slice, 1};
}

}  // namespace attention::server
