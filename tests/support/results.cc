#include "tests/support/results.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/batch.h"

namespace attention::test {
namespace {

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && a.shape() == b.shape() &&
         std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin(),
                    b.bytes().end());
}

bool SameBits(const std::optional<Tensor>& a, const std::optional<Tensor>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return SameBits(*a, *b);
}

// 0x7B everywhere: a large finite number in every floating-point type.
absl::StatusOr<Tensor> Unwritten(DataType type, const Shape& shape) {
  absl::StatusOr<Tensor> tensor = Tensor::Create(type, shape);
  if (tensor.ok() && tensor->byte_size() > 0) {
    std::memset(tensor->data(), 0x7B, tensor->byte_size());
  }
  return tensor;
}

// What AddBackend() and UseBackend() have said.
struct Chosen {
  std::map<std::string, MakeBackend> added;
  std::string only;
};

Chosen& ChosenBackends() {
  static auto* const chosen = new Chosen();
  return *chosen;
}

}  // namespace

bool SameBits(const Results& a, const Results& b) {
  return SameBits(a.output, b.output) && SameBits(a.weights, b.weights) &&
         SameBits(a.lse, b.lse);
}

bool AddBackend(const std::string& name, MakeBackend make) {
  return ChosenBackends().added.emplace(name, make).second;
}

bool UseBackend(const std::string& name) {
  ChosenBackends().only = name;
  return true;
}

std::vector<std::string> Backends() {
  const Chosen& chosen = ChosenBackends();
  if (!chosen.only.empty()) return {chosen.only};
  std::vector<std::string> names;
  for (const std::string& name : BackendNames()) {
    if (name != "auto" && name != "cuda") names.push_back(name);
  }
  for (const auto& [name, make] : chosen.added) names.push_back(name);
  return names;
}

std::unique_ptr<Engine> MakeEngine(const std::string& backend, int threads) {
  EngineOptions options;
  options.backend = backend;
  const auto& added = ChosenBackends().added;
  if (const auto found = added.find(backend); found != added.end()) {
    options.more_backends.push_back(found->second());
  }
  options.threads = threads;
  return Engine::Create(std::move(options)).value();
}

absl::StatusOr<Results> RunOn(const Engine& engine,
                              const AttentionProblem& problem) {
  const absl::StatusOr<ValidatedBatch> validated = ValidateBatch(problem);
  if (!validated.ok()) return validated.status();
  Results results;
  AttentionOutputs outputs;
  auto output = Unwritten(problem.query.type, validated->output_shape);
  if (!output.ok()) return output.status();
  results.output = *std::move(output);
  outputs.output = results.output.mutable_view();
  if (problem.wanted.weights) {
    auto weights = Unwritten(DataType::kFloat32, validated->weights_shape);
    if (!weights.ok()) return weights.status();
    results.weights = *std::move(weights);
    outputs.weights = results.weights->mutable_view();
  }
  if (problem.wanted.lse) {
    auto lse = Unwritten(DataType::kFloat32, validated->lse_shape);
    if (!lse.ok()) return lse.status();
    results.lse = *std::move(lse);
    outputs.lse = results.lse->mutable_view();
  }
  std::vector<AttentionJob> jobs(validated->problems.size());
  for (size_t n = 0; n < jobs.size(); ++n) {
    jobs[n].problem = &validated->problems[n];
    jobs[n].outputs = validated->OutputsOf(n, outputs);
  }
  const absl::Status status = engine.Run(absl::MakeSpan(jobs));
  if (!status.ok()) return status;
  if (!jobs.empty()) {
    results.kernel = static_cast<std::string>(jobs.front().kernel);
  }
  return results;
}

}  // namespace attention::test
