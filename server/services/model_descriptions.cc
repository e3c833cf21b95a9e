#include "server/services/model_descriptions.h"

#include <string>
#include <vector>

namespace attention::server {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

constexpr char kPlatform[] = "attention";
constexpr char kOutput[] = "output";
// 4 dimensions, or as many as a parameter of one head has.
constexpr int kTensorRank = 4;
constexpr int kMatrixRank = 2;
constexpr int kVectorRank = 1;

struct Input {
  std::string name;
  int rank;
};

std::vector<Input> InputsOf(const Model& model) {
  std::vector<Input> inputs = {
      {"query", kTensorRank}, {"key", kTensorRank}, {"value", kTensorRank}};
  for (const std::string& name : model.parameter_inputs) {
    inputs.push_back({name, name == "w_v" ? kVectorRank : kMatrixRank});
  }
  return inputs;
}

void FillTensor(const std::string& name, int rank,
                inference::ModelMetadataResponse::TensorMetadata& tensor) {
  tensor.set_name(name);
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
  for (const Input& input : InputsOf(model)) {
    FillTensor(input.name, input.rank, *metadata.add_inputs());
  }
  FillTensor(kOutput, kTensorRank, *metadata.add_outputs());
}

void FillModelConfig(const Model& model, inference::ModelConfig& config) {
  config.set_name(model.name);
  config.set_platform(kPlatform);
  config.set_backend(kPlatform);
  config.set_max_batch_size(0);
  for (const Input& input : InputsOf(model)) {
    inference::ModelInput& wire = *config.add_input();
    wire.set_name(input.name);
    wire.set_data_type(inference::TYPE_FP32);
    for (int n = 0; n < input.rank; ++n) wire.add_dims(-1);
  }
  inference::ModelOutput& output = *config.add_output();
  output.set_name(kOutput);
  output.set_data_type(inference::TYPE_FP32);
  for (int n = 0; n < kTensorRank; ++n) output.add_dims(-1);
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
