#include "benchmarks/runner.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/batch.h"
#include "core/formats/safetensors.h"

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
  absl::Status status;
  if (shape.IsPacked()) {
    const auto batch = ValidateBatch(runner->inputs_.problem());
    if (!batch.ok()) return batch.status();
    status =
        runner->CreateResults(shape, batch->output_type, batch->output_shape,
                              batch->weights_shape, batch->lse_shape);
    for (const ValidatedProblem& entry : batch->problems) {
      runner->CountPairs(entry);
    }
  } else {
    const auto valid = Validate(runner->inputs_.problem());
    if (!valid.ok()) return valid.status();
    status =
        runner->CreateResults(shape, valid->query.type, valid->output_shape,
                              valid->weights_shape, valid->lse_shape);
    runner->CountPairs(*valid);
  }
  if (!status.ok()) return status;
  return runner;
}

absl::Status Runner::CreateResults(const Case& shape, DataType type,
                                   const Shape& output, const Shape& weights,
                                   const Shape& lse) {
  const auto create = [](DataType of, const Shape& extents, Tensor& tensor,
                         MutableTensorView& view) {
    absl::StatusOr<Tensor> created = Tensor::Create(of, extents);
    if (!created.ok()) return created.status();
    tensor = *std::move(created);
    view = tensor.mutable_view();
    return absl::OkStatus();
  };
  absl::Status status = create(type, output, output_, outputs_.output);
  if (status.ok() && shape.weights) {
    status = create(DataType::kFloat32, weights, weights_, outputs_.weights);
  }
  if (status.ok() && shape.lse) {
    status = create(DataType::kFloat32, lse, lse_, outputs_.lse);
  }
  return status;
}

void Runner::CountPairs(const ValidatedProblem& problem) {
  for (int64_t b = 0; b < problem.batch; ++b) {
    for (int64_t i = 0; i < problem.query_length; ++i) {
      const KeyRange keys = KeysInRange(problem, b, i);
      pairs_ += problem.query_heads * (keys.end - keys.begin);
    }
  }
}

absl::Status Runner::Run() {
  if (inputs_.problem().query_starts) return RunPacked();
  const auto valid = Validate(inputs_.problem());
  if (!valid.ok()) return valid.status();
  AttentionJob job;
  job.problem = &*valid;
  job.outputs = outputs_;
  return engine_->Run(job);
}

absl::Status Runner::RunPacked() {
  const auto batch = ValidateBatch(inputs_.problem());
  if (!batch.ok()) return batch.status();
  std::vector<AttentionJob> jobs(batch->problems.size());
  for (size_t n = 0; n < jobs.size(); ++n) {
    jobs[n].problem = &batch->problems[n];
    jobs[n].outputs = batch->OutputsOf(n, outputs_);
  }
  return engine_->Run(absl::MakeSpan(jobs));
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
