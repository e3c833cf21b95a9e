#include "tests/unit/cpu/target_runner.h"

#include <cstring>

#include "tests/support/cpu_test_targets.h"

namespace attention::test {
namespace {

Tensor Patterned(DataType type, const Shape& shape) {
  Tensor tensor = Tensor::Create(type, shape).value();
  if (tensor.byte_size() > 0) {
    std::memset(tensor.data(), 0x5A, static_cast<size_t>(tensor.byte_size()));
  }
  return tensor;
}

}  // namespace

TargetRunner::TargetRunner(const std::string& target, int threads)
    : backend_(MakeCpuTestBackend(target)), workers_(threads) {}

absl::StatusOr<Results> TargetRunner::Run(const AttentionProblem& problem) {
  const auto valid = Validate(problem);
  if (!valid.ok()) return valid.status();
  Results results;
  results.output = Patterned(problem.query.type, valid->output_shape);
  AttentionJob job;
  job.problem = &*valid;
  job.before_tile = before_tile_;
  job.outputs.output = results.output.mutable_view();
  if (problem.wanted.weights) {
    results.weights = Patterned(DataType::kFloat32, valid->weights_shape);
    job.outputs.weights = results.weights->mutable_view();
  }
  if (problem.wanted.lse) {
    results.lse = Patterned(DataType::kFloat32, valid->lse_shape);
    job.outputs.lse = results.lse->mutable_view();
  }
  backend_->Run(absl::MakeSpan(&job, 1), RunContext{workers_});
  kernel_ = static_cast<std::string>(job.kernel);
  if (!job.status.ok()) return job.status;
  return results;
}

}  // namespace attention::test
