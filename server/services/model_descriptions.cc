#include "server/services/model_descriptions.h"

#include <vector>

#include "server/request/tensor_fields.h"

namespace attention::server {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

constexpr char kPlatform[] = "attention";
constexpr absl::string_view kOutput = Name(ResultField::kOutput);
constexpr int kOutputRank = 4;

// The tensors that every request for the model must bring.
std::vector<const TensorField*> InputsOf(const Model& model) {
  AttentionProblem problem = model.defaults;
  std::vector<const TensorField*> inputs;
  for (const TensorField& tensor : TensorFields()) {
    if (tensor.need == Need::kEveryRequest ||
        (tensor.need == Need::kScoring && Accepts(tensor, problem))) {
      inputs.push_back(&tensor);
    }
  }
  return inputs;
}

void FillTensor(absl::string_view name, int rank,
                inference::ModelMetadataResponse::TensorMetadata& tensor) {
  tensor.set_name(name.data(), name.size());
  tensor.set_datatype("FP32");
  for (int n = 0; n < rank; ++n) tensor.add_shape(-1);
}

void Fill(const CountAndTime& from, inference::StatisticDuration& to) {
  to.set_count(from.count);
  to.set_ns(static_cast<uint64_t>(from.time.count()));
}

}  // namespace

void FillModelMetadata(const Model& model,
                       inference::ModelMetadataResponse& metadata) {
  metadata.set_name(model.name);
  metadata.add_versions(kModelVersion);
  metadata.set_platform(kPlatform);
  for (const TensorField* input : InputsOf(model)) {
    FillTensor(input->name, input->metadata_rank, *metadata.add_inputs());
  }
  FillTensor(kOutput, kOutputRank, *metadata.add_outputs());
}

void FillModelConfig(const Model& model, inference::ModelConfig& config) {
  config.set_name(model.name);
  config.set_platform(kPlatform);
  config.set_backend(kPlatform);
  config.set_max_batch_size(0);
  for (const TensorField* input : InputsOf(model)) {
    inference::ModelInput& wire = *config.add_input();
    wire.set_name(input->name.data(), input->name.size());
    wire.set_data_type(inference::TYPE_FP32);
    for (int n = 0; n < input->metadata_rank; ++n) wire.add_dims(-1);
  }
  inference::ModelOutput& output = *config.add_output();
  output.set_name(kOutput.data(), kOutput.size());
  output.set_data_type(inference::TYPE_FP32);
  for (int n = 0; n < kOutputRank; ++n) output.add_dims(-1);
  if (model.sequences) config.mutable_sequence_batching();
  config.mutable_model_transaction_policy()->set_decoupled(false);
}

void FillModelStatistics(const Model& model,
                         inference::ModelStatistics& statistics) {
  const ModelStatistics read = model.counters->Read();
  statistics.set_name(model.name);
  statistics.set_version(kModelVersion);
  statistics.set_last_inference(static_cast<uint64_t>(
      duration_cast<milliseconds>(read.last_inference.time_since_epoch())
          .count()));
  statistics.set_inference_count(read.batch_entries);
  statistics.set_execution_count(read.success.count);
  inference::InferStatistics& times = *statistics.mutable_inference_stats();
  Fill(read.success, *times.mutable_success());
  Fill(read.fail, *times.mutable_fail());
  Fill(read.queue, *times.mutable_queue());
  Fill(read.compute_input, *times.mutable_compute_input());
  Fill(read.compute_infer, *times.mutable_compute_infer());
  Fill(read.compute_output, *times.mutable_compute_output());
  Fill({}, *times.mutable_cache_hit());
  Fill({}, *times.mutable_cache_miss());
}

}  // namespace attention::server
