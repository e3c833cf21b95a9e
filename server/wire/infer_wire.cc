#include "server/wire/infer_wire.h"

#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "server/wire/infer_parameters.h"
#include "server/wire/problem_translation.h"

namespace attention::server {

absl::StatusOr<AttentionProblem> InferWire::Decode(
    std::vector<grpc::Slice> message) {
  absl::StatusOr<DecodedInferRequest> request =
      DecodeInferRequest(std::move(message));
  if (!request.ok()) return request.status();
  request_ = *std::move(request);
  const inference::ModelInferRequest& fields = request_.message;
  if (fields.id().size() > kMostIdBytes) {
    return absl::InvalidArgumentError(absl::StrCat("id: ", fields.id().size(),
                                                   " bytes (expected at most ",
                                                   kMostIdBytes, ")"));
  }
  auto model = models_.Find(fields.model_name(), fields.model_version());
  if (!model.ok()) return model.status();
  model_ = *std::move(model);

  AttentionProblem problem = model_->defaults;
  absl::Status status = ApplyParameters(fields.parameters(), problem);
  if (status.ok()) {
    status = ReadInferInputs(request_, *model_, regions_, problem, memory_);
  }
  if (!status.ok()) return status;
  auto outputs = ReadInferOutputs(fields, regions_);
  if (!outputs.ok()) return outputs.status();
  outputs_ = *std::move(outputs);
  for (const InferOutput& output : outputs_) {
    problem.wanted.weights |= output.name == "weights";
    problem.wanted.lse |= output.name == "lse";
  }
  return problem;
}

void InferWire::Gather(WorkerPool* workers) {
  absl::InlinedVector<TensorBytes*, 8> tensors;
  for (TensorBytes& raw : request_.raw) tensors.push_back(&raw);
  GatherAll(tensors, workers);
}

absl::Status InferWire::PlanReply(const ValidatedProblem& problem,
                                  int64_t limit) {
  batch_ = problem.batch;
  reply_.emplace(std::move(outputs_), problem);
  return reply_->CheckFits(limit);
}

absl::StatusOr<grpc::ByteBuffer> InferWire::Encode(const RequestFacts&) {
  for (const auto& region : memory_.regions) {
    absl::Status intact = region->CheckIntact();
    if (!intact.ok()) return intact;
  }
  inference::ModelInferResponse response;
  response.set_model_name(model_->name);
  response.set_model_version(kModelVersion);
  response.set_id(request_.message.id());
  if (on_stream_) {
    // One request has one reply.
    (*response.mutable_parameters())["triton_final_response"].set_bool_param(
        true);
  }
  return std::move(*reply_).Build(std::move(response), on_stream_);
}

void InferWire::Finished(const RequestFacts& facts,
                         const absl::Status& status) {
  if (model_ == nullptr) return;
  if (status.ok()) {
    model_->counters->CountSuccess(facts, batch_);
  } else {
    model_->counters->CountFailure(facts);
  }
}

}  // namespace attention::server
