#include "benchmarks/runner.h"

#include <map>
#include <utility>

#include "core/formats/safetensors.h"
#include "core/validate.h"

namespace attention::bench {

Runner::Runner(const Case& shape, std::unique_ptr<Engine> engine)
    : inputs_(shape), engine_(std::move(engine)) {}

absl::StatusOr<std::unique_ptr<Runner>> Runner::Create(
    const Case& shape, absl::FunctionRef<void(Inputs&)> change) {
  auto engine =
      Engine::Create({.threads = shape.threads, .backend = shape.backend});
  if (!engine.ok()) return engine.status();
  std::unique_ptr<Runner> runner(new Runner(shape, *std::move(engine)));
  change(runner->inputs_);
  const auto valid = Validate(runner->inputs_.problem());
  if (!valid.ok()) return valid.status();
  const auto create = [](DataType type, const Shape& extents, Tensor& tensor,
                         MutableTensorView& view) {
    absl::StatusOr<Tensor> created = Tensor::Create(type, extents);
    if (!created.ok()) return created.status();
    tensor = *std::move(created);
    view = tensor.mutable_view();
    return absl::OkStatus();
  };
  absl::Status status = create(valid->query.type, valid->output_shape,
                               runner->output_, runner->outputs_.output);
  if (status.ok() && shape.weights) {
    status = create(DataType::kFloat32, valid->weights_shape, runner->weights_,
                    runner->outputs_.weights);
  }
  if (status.ok() && shape.lse) {
    status = create(DataType::kFloat32, valid->lse_shape, runner->lse_,
                    runner->outputs_.lse);
  }
  if (!status.ok()) return status;
  for (int64_t b = 0; b < valid->batch; ++b) {
    for (int64_t i = 0; i < valid->query_length; ++i) {
      const KeyRange keys = KeysInRange(*valid, b, i);
      runner->pairs_ += valid->query_heads * (keys.end - keys.begin);
    }
  }
  return runner;
}

absl::Status Runner::Run() {
  const auto valid = Validate(inputs_.problem());
  if (!valid.ok()) return valid.status();
  AttentionJob job;
  job.problem = &*valid;
  job.outputs = outputs_;
  return engine_->Run(job);
}

absl::Status Runner::Save(const std::string& path) const {
  SafetensorsFile file;
  for (const auto& [name, tensor] : inputs_.tensors()) {
    file.tensors.emplace(name, tensor);
  }
  file.tensors.emplace("output", output_);
  if (weights_.byte_size() > 0) file.tensors.emplace("weights", weights_);
  if (lse_.byte_size() > 0) file.tensors.emplace("lse", lse_);
  return WriteSafetensors(path, file);
}

std::string Runner::InstructionSet() const {
  return engine_->backends()[0]->instruction_set();
}

}  // namespace attention::bench
