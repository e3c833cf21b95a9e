#include "server/wire/infer_reply.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/wire/infer_inputs.h"
#include "server/wire/infer_parameters.h"
#include "server/wire/message_pieces.h"

namespace attention::server {
namespace {

using inference::ModelInferRequest;
using inference::ModelInferResponse;
using inference::ModelStreamInferResponse;

// Model's name, version, id, each output's name, datatype and shape: what a
// reply has beside elements.
constexpr int64_t kMostOtherBytes = 2048;

absl::StatusOr<InferOutput> ReadOutput(
    const ModelInferRequest::InferRequestedOutputTensor& wire,
    const SharedMemoryRegistry* regions) {
  InferOutput output;
  output.name = wire.name();
  if (output.name != "output" && output.name != "weights" &&
      output.name != "lse") {
    return absl::InvalidArgumentError(
        absl::StrCat("output '", output.name.substr(0, 64),
                     "' is unknown (known are output, weights, lse)"));
  }
  const auto reference = RegionOf(output.name, wire.parameters());
  if (!reference.ok()) return reference.status();
  if (!*reference) return output;
  auto region = FindRegion(regions, (*reference)->region);
  if (!region.ok()) return region.status();
  const auto place =
      (*region)->Bytes((*reference)->offset, (*reference)->byte_size);
  if (!place.ok()) {
    return absl::Status(
        place.status().code(),
        absl::StrCat(output.name, ": ", place.status().message()));
  }
  output.place = *place;
  output.region = *std::move(region);
  return output;
}

}  // namespace

absl::StatusOr<std::vector<InferOutput>> ReadInferOutputs(
    const ModelInferRequest& request, const SharedMemoryRegistry* regions) {
  std::vector<InferOutput> outputs;
  std::set<std::string> seen;
  for (const auto& wire : request.outputs()) {
    absl::StatusOr<InferOutput> output = ReadOutput(wire, regions);
    if (!output.ok()) return output.status();
    if (!seen.insert(output->name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(output->name, ": asked for twice"));
    }
    outputs.push_back(*std::move(output));
  }
  if (outputs.empty()) outputs.emplace_back().name = "output";
  return outputs;
}

InferReplyBuilder::InferReplyBuilder(std::vector<InferOutput> outputs,
                                     const ValidatedProblem& problem)
    : outputs_(std::move(outputs)) {
  Plan(output_, "output", problem.query.type, problem.output_shape);
  Plan(weights_, "weights", DataType::kFloat32, problem.weights_shape);
  Plan(lse_, "lse", DataType::kFloat32, problem.lse_shape);
}

void InferReplyBuilder::Plan(Result& result, absl::string_view name,
                             DataType type, const Shape& shape) {
  for (const InferOutput& output : outputs_) {
    if (output.name == name) result.wanted = &output;
  }
  result.type = type;
  result.shape = shape;
  result.bytes = SaturatingBytes(type, shape);
}

InferReplyBuilder::Result& InferReplyBuilder::ResultOf(
    const std::string& name) {
  if (name == "output") return output_;
  return name == "weights" ? weights_ : lse_;
}

bool InferReplyBuilder::NeedsBuffer(const Result& result) const {
  // The engine computes the output in any case.
  return result.wanted == nullptr ? &result == &output_ : result.in_message();
}

int64_t InferReplyBuilder::Bytes() const {
  int64_t total = kMostOtherBytes;
  for (const Result* result : {&output_, &weights_, &lse_}) {
    if (NeedsBuffer(*result)) total = SaturatingAdd(total, result->bytes);
  }
  return total;
}

absl::Status InferReplyBuilder::CheckFits(int64_t limit) const {
  const Result* largest = &output_;
  for (const Result* result : {&output_, &weights_, &lse_}) {
    if (result->wanted == nullptr) continue;
    if (result->in_message()) {
      if (result->bytes > largest->bytes) largest = result;
      continue;
    }
    const auto room = static_cast<int64_t>(result->wanted->place.size());
    if (result->bytes > room) {
      return absl::InvalidArgumentError(
          absl::StrCat(result->wanted->name, ": shape ",
                       ShapeToString(result->shape), " takes ", result->bytes,
                       " bytes, shared_memory_byte_size is ", room));
    }
  }
  if (Bytes() <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      largest->wanted == nullptr ? "output" : largest->wanted->name, ": shape ",
      ShapeToString(largest->shape), " takes ", largest->bytes,
      " bytes, the reply ", Bytes(), " (at most ", limit,
      ", the server's max_response_bytes)"));
}

absl::Status InferReplyBuilder::Allocate() {
  for (Result* result : {&output_, &weights_, &lse_}) {
    if (!NeedsBuffer(*result)) continue;
    absl::StatusOr<AlignedBuffer> buffer = AlignedBuffer::Create(result->bytes);
    if (!buffer.ok()) return buffer.status();
    result->buffer = *std::move(buffer);
  }
  return absl::OkStatus();
}

AttentionOutputs InferReplyBuilder::Outputs() {
  AttentionOutputs outputs;
  const auto view = [](Result& result) {
    MutableTensorView place =
        MutableContiguousView(result.type, result.shape, result.memory());
    if (result.wanted != nullptr && result.wanted->region != nullptr) {
      const auto& facts = result.wanted->region->description();
      place.space = facts.space;
      place.device = facts.device;
    }
    return place;
  };
  outputs.output = view(output_);
  if (weights_.wanted != nullptr) outputs.weights = view(weights_);
  if (lse_.wanted != nullptr) outputs.lse = view(lse_);
  return outputs;
}

absl::StatusOr<grpc::ByteBuffer> InferReplyBuilder::Build(
    ModelInferResponse response, bool on_stream) && {
  std::vector<grpc::Slice> elements;
  int64_t bytes = 0;
  for (const InferOutput& wanted : outputs_) {
    Result& result = ResultOf(wanted.name);
    auto& output = *response.add_outputs();
    output.set_name(wanted.name);
    output.set_datatype(static_cast<std::string>(Name(result.type)));
    output.mutable_shape()->Assign(result.shape.begin(), result.shape.end());
    if (wanted.region != nullptr) {
      absl::Status intact = wanted.region->CheckIntact();
      if (!intact.ok()) return intact;
    }
    // One entry for each output, an empty one where it is elsewhere.
    const int64_t size = wanted.region == nullptr ? result.bytes : 0;
    elements.emplace_back(
        FieldHeader(ModelInferResponse::kRawOutputContentsFieldNumber, size));
    if (size > 0) elements.push_back(ToSlice(std::move(result.buffer)));
  }
  const std::string fields = response.SerializeAsString();
  bytes = static_cast<int64_t>(fields.size());
  for (const grpc::Slice& slice : elements) {
    bytes += static_cast<int64_t>(slice.size());
  }
  std::vector<grpc::Slice> message;
  if (on_stream) {
    message.emplace_back(FieldHeader(
        ModelStreamInferResponse::kInferResponseFieldNumber, bytes));
  }
  message.emplace_back(fields);
  message.insert(message.end(), elements.begin(), elements.end());
  return ToByteBuffer(message);
}

grpc::ByteBuffer EncodeInferStreamError(const std::string& id,
                                        const absl::Status& status) {
  ModelStreamInferResponse response;
  response.set_error_message(static_cast<std::string>(status.message()));
  response.mutable_infer_response()->set_id(id);
  const grpc::Slice slice(response.SerializeAsString());
  return {&slice, 1};
}

}  // namespace attention::server
