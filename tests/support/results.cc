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
         SameBits(a.lse, b.lse) && SameBits(a.top_k_indices, b.top_k_indices) &&
         SameBits(a.top_k_weights, b.top_k_weights) &&
         SameBits(a.key_weights, b.key_weights) && SameBits(a.scores, b.scores);
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

absl::StatusOr<Results> UnwrittenResults(const WantedOutputs& wanted,
                                         const ValidatedBatch& batch) {
  Results results;
  absl::Status status;
  const auto make = [&status](bool is_wanted, DataType type, const Shape& shape,
                              std::optional<Tensor>& result) {
    if (!is_wanted || !status.ok()) return;
    absl::StatusOr<Tensor> tensor = Unwritten(type, shape);
    status = tensor.status();
    if (tensor.ok()) result = *std::move(tensor);
  };
  constexpr DataType kFloat = DataType::kFloat32;
  const bool top_k = wanted.top_k.has_value();
  std::optional<Tensor> output;
  make(true, batch.output_type, batch.output_shape, output);
  make(wanted.weights, kFloat, batch.weights_shape, results.weights);
  make(wanted.lse, kFloat, batch.lse_shape, results.lse);
  make(top_k, DataType::kInt64, batch.top_k_shape, results.top_k_indices);
  make(top_k, kFloat, batch.top_k_shape, results.top_k_weights);
  make(wanted.key_weights, kFloat, batch.key_weights_shape,
       results.key_weights);
  make(wanted.scores.has_value(), kFloat, batch.weights_shape, results.scores);
  if (!status.ok()) return status;
  results.output = *std::move(output);
  return results;
}

AttentionOutputs OutputsOf(Results& results) {
  const auto view = [](std::optional<Tensor>& tensor) {
    return tensor ? tensor->mutable_view() : MutableTensorView();
  };
  return {.output = results.output.mutable_view(),
          .weights = view(results.weights),
          .lse = view(results.lse),
          .top_k_indices = view(results.top_k_indices),
          .top_k_weights = view(results.top_k_weights),
          .key_weights = view(results.key_weights),
          .scores = view(results.scores)};
}

AttentionProblem WithoutRefused(const Engine& engine,
                                AttentionProblem problem) {
  const absl::StatusOr<ValidatedProblem> valid = Validate(problem);
  if (!valid.ok() || engine.backends()[0]->Supports(*valid).ok()) {
    return problem;
  }
  problem.wanted.top_k.reset();
  problem.wanted.key_weights = false;
  problem.wanted.scores.reset();
  return problem;
}

absl::StatusOr<Results> RunOn(const Engine& engine,
                              const AttentionProblem& problem) {
  const absl::StatusOr<ValidatedBatch> validated = ValidateBatch(problem);
  if (!validated.ok()) return validated.status();
  absl::StatusOr<Results> made = UnwrittenResults(problem.wanted, *validated);
  if (!made.ok()) return made.status();
  Results results = *std::move(made);
  const AttentionOutputs outputs = OutputsOf(results);
  std::vector<AttentionJob> jobs(validated->problems.size());
  for (size_t n = 0; n < jobs.size(); ++n) {
    jobs[n].problem = &validated->problems[n];
    jobs[n].outputs = validated->OutputsOf(n, outputs);
  }
  absl::Status status = engine.Run(absl::MakeSpan(jobs));
  if (!status.ok()) return status;
  if (!jobs.empty()) {
    results.kernel = static_cast<std::string>(jobs.front().kernel);
  }
  return results;
}

}  // namespace attention::test
