#ifndef ATTENTION_TESTS_SUPPORT_RESULTS_H_
#define ATTENTION_TESTS_SUPPORT_RESULTS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/batch.h"
#include "core/engine.h"
#include "core/problem.h"
#include "core/tensor.h"

namespace attention::test {

/// What was answered to a problem, by an engine or by a server.
struct Results {
  Tensor output;
  std::optional<Tensor> weights;
  std::optional<Tensor> lse;
  std::optional<Tensor> top_k_indices = {};
  std::optional<Tensor> top_k_weights = {};
  std::optional<Tensor> key_weights = {};
  std::optional<Tensor> scores = {};
  std::string kernel = {};  // that answered, where an engine says so
};

/// True where every wanted result has the same bits in both.
bool SameBits(const Results& a, const Results& b);

/// What tests are run for: the backends of this machine's processor (cpu,
/// reference) and those that AddBackend() has added; or what UseBackend() says.
std::vector<std::string> Backends();

/// Adds a backend that is the tests' own. Before main.
using MakeBackend = std::unique_ptr<Backend> (*)();
bool AddBackend(const std::string& name, MakeBackend make);
/// Makes `name` the only backend that this program tests. Before main.
bool UseBackend(const std::string& name);

/// An engine of one backend. Ends the process where there is no such backend.
std::unique_ptr<Engine> MakeEngine(const std::string& backend, int threads = 2);

/// Memory for what is wanted of a batch, every byte 0x7B: a large finite number
/// in every floating-point type, so that an element that nobody writes is seen.
absl::StatusOr<Results> UnwrittenResults(const WantedOutputs& wanted,
                                         const ValidatedBatch& batch);
/// Where an engine writes them to.
AttentionOutputs OutputsOf(Results& results);

/// The problem without the results that the engine's only backend leaves to the
/// next one: a device's kernels give no top_k, key_weights and scores.
AttentionProblem WithoutRefused(const Engine& engine, AttentionProblem problem);

/// Validates a problem and runs it. Result memory is filled with a pattern
/// beforehand, so that an element that nobody writes is seen.
absl::StatusOr<Results> RunOn(const Engine& engine,
                              const AttentionProblem& problem);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_RESULTS_H_
