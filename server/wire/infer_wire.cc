#include "server/wire/infer_wire.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/utf8.h"
#include "server/request/request_builder.h"
#include "server/wire/infer_inputs.h"
#include "server/wire/message_pieces.h"
#include "server/wire/status_table.h"

namespace attention::server {
namespace {

using inference::ModelInferRequest;
using inference::ModelInferResponse;
using inference::ModelStreamInferResponse;

// Model's name, version, id, each output's name, datatype and shape: what a
// reply has beside elements.
constexpr int64_t kBytesBesideTensors = 2048;

// As many as one call of KeyValueService makes.
constexpr int64_t kMostSequencesOfARequest = 256;

absl::StatusOr<WantedResult> ReadOutput(
    const ModelInferRequest::InferRequestedOutputTensor& output,
    SharedMemoryAccess regions) {
  const auto* const name = absl::c_find(kResultNames, output.name());
  if (name == std::end(kResultNames)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "output '", output.name().substr(0, 64), "' is unknown (known are ",
        absl::StrJoin(kResultNames, ", "), ")"));
  }
  WantedResult result;
  result.result = kResultFields[name - std::begin(kResultNames)];
  absl::StatusOr<RegionBytes> place =
      ReadRegion(output.name(), output.parameters(), regions);
  if (!place.ok()) return place.status();
  result.place = *std::move(place);
  return result;
}

absl::Status ReadOutputs(const ModelInferRequest& message,
                         SharedMemoryAccess regions, RequestBuilder& builder) {
  for (const auto& output : message.outputs()) {
    const absl::StatusOr<WantedResult> result = ReadOutput(output, regions);
    if (!result.ok()) return result.status();
    if (absl::Status status = builder.AddResult(*result); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

// Of a packed batch as many as begin somewhere.
int64_t EntriesOf(const AttentionProblem& problem) {
  const std::optional<TensorView>& starts = problem.query_starts;
  if (starts && starts->rank() == 1) {
    return std::max<int64_t>(0, starts->shape[0] - 1);
  }
  return problem.query.rank() > 2 ? problem.query.shape[0] : 1;
}

// A sequence for each entry of the batch.
absl::Status SetSequence(const InferSequence& sequence,
                         RequestBuilder& builder) {
  const int64_t entries = EntriesOf(builder.problem());
  if (entries < 1 || entries > kMostSequencesOfARequest) {
    return FieldError(
        "sequence_id",
        absl::StrCat("for a batch of ", entries, " (expected 1 to ",
                     kMostSequencesOfARequest, ")"));
  }
  return builder.SetSequences(SequencesOf(sequence, entries), sequence.life);
}

// The outputs' entries in `response`, and the elements of each.
std::vector<grpc::Slice> AddOutputs(absl::Span<Result> results,
                                    ModelInferResponse& response) {
  std::vector<grpc::Slice> slices;
  for (Result& result : results) {
    const absl::string_view name = Name(result.wanted.result);
    auto& output = *response.add_outputs();
    output.set_name(name.data(), name.size());
    output.set_datatype(static_cast<std::string>(Name(result.type)));
    output.mutable_shape()->Assign(result.shape.begin(), result.shape.end());
    const bool sent = !result.in_region() && result.bytes > 0;
    slices.push_back(sent ? ToSlice(std::move(result.buffer)) : grpc::Slice());
  }
  return slices;
}

}  // namespace

absl::StatusOr<AttentionRequest> InferWire::Decode(ReceivedMessage message,
                                                   HoldBytes hold) {
  absl::StatusOr<MessageElements> elements =
      SplitMessage(std::move(message), InferRules(), message_, pinned_);
  const absl::Status read = elements.status();
  if (read.ok()) elements_ = *std::move(elements);
  MessageInputs inputs(message_, elements_, hold);
  return ToRequest(read, inputs, hold);
}

absl::Status InferWire::FindSequence() {
  auto model = models_.Find(message_.model_name(), message_.model_version());
  if (!model.ok()) return model.status();
  model_ = *std::move(model);
  auto sequence = ReadSequence(message_.parameters());
  if (!sequence.ok()) return sequence.status();
  sequence_ = *std::move(sequence);
  if (sequence_) sequence_->life.names = NamesOf(*sequence_, model_->name);
  return absl::OkStatus();
}

absl::StatusOr<AttentionRequest> InferWire::ToRequest(const absl::Status& read,
                                                      InputElements& inputs,
                                                      HoldBytes hold) {
  // First: a start ends an older sequence whatever is wrong with the rest.
  absl::Status found = FindSequence();
  if (!read.ok()) return read;
  if (!found.ok()) return found;

  RequestBuilder builder(model_->defaults, model_->owner);
  absl::Status status = CheckId(id());
  if (status.ok()) status = ReadParameters(message_.parameters(), builder);
  if (status.ok()) {
    status =
        ReadInputs(message_, inputs, model_->name, regions_, hold, builder);
  }
  if (status.ok()) status = ReadOutputs(message_, regions_, builder);
  if (status.ok() && sequence_) status = SetSequence(*sequence_, builder);
  if (!status.ok()) return status;
  return std::move(builder).Build();
}

int64_t InferWire::OtherBytes() const { return kBytesBesideTensors; }

ReplyBuffer InferWire::Encode(absl::Span<Result> results,
                              const RequestFacts& facts) {
  ModelInferResponse response;
  response.set_model_name(model_->name);
  response.set_model_version(kModelVersion);
  response.set_id(id());
  auto& parameters = *response.mutable_parameters();
  parameters["backend"].set_string_param(facts.backend);
  parameters["kernel"].set_string_param(facts.kernel);
  parameters["queue_ns"].set_uint64_param(
      static_cast<uint64_t>(facts.queue_time.count()));
  parameters["compute_ns"].set_uint64_param(
      static_cast<uint64_t>(facts.compute_time.count()));
  if (on_stream_) {
    // One request has one reply.
    parameters["triton_final_response"].set_bool_param(true);
  }
  std::vector<grpc::Slice> elements = AddOutputs(results, response);
  return Assemble(response, std::move(elements));
}

ReplyBuffer InferWire::Assemble(const ModelInferResponse& fields,
                                std::vector<grpc::Slice> elements) {
  std::vector<grpc::Slice> message = {grpc::Slice(fields.SerializeAsString())};
  // One entry for each output, an empty one where it is in a region.
  for (grpc::Slice& slice : elements) {
    message.emplace_back(
        FieldHeader(ModelInferResponse::kRawOutputContentsFieldNumber,
                    static_cast<int64_t>(slice.size())));
    if (slice.size() > 0) message.push_back(std::move(slice));
  }
  if (on_stream_) {
    int64_t bytes = 0;
    for (const grpc::Slice& slice : message) {
      bytes += static_cast<int64_t>(slice.size());
    }
    message.emplace(
        message.begin(),
        FieldHeader(ModelStreamInferResponse::kInferResponseFieldNumber,
                    bytes));
  }
  return ToReplyBuffer(message);
}

ReplyBuffer EncodeInferStreamError(const std::string& id,
                                   const absl::Status& status) {
  ModelStreamInferResponse response;
  response.set_error_message(ToGrpcStatus(status).error_message());
  // It may be the id that is refused for its length.
  response.mutable_infer_response()->set_id(TruncateUtf8(id, kMostIdBytes));
  const grpc::Slice slice(response.SerializeAsString());
  return {&slice, 1};
}

}  // namespace attention::server
