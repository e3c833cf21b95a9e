#ifndef ATTENTION_BENCHMARKS_RUNNER_H_
#define ATTENTION_BENCHMARKS_RUNNER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "benchmarks/shape.h"
#include "core/engine.h"
#include "core/tensor.h"
#include "core/validate.h"

namespace attention::bench {

/// A case made ready to be run again and again: its engine, its inputs, and
/// result buffers that every run writes anew.
class Runner {
 public:
  /// `change`, where given, is the last to touch the inputs.
  static absl::StatusOr<std::unique_ptr<Runner>> Create(
      const Case& shape, absl::FunctionRef<void(Inputs&)> change = Unchanged);

  /// What a caller of the library does: validates the problem and computes it.
  absl::Status Run();

  /// Writes the inputs, the parameters and the results of the last run as one
  /// safetensors file, named as on the wire: query, key, value, w_q, ...,
  /// valid_lens, attend_mask, query_starts, key_starts, output, weights, lse.
  absl::Status Save(const std::string& path) const;

  /// Pairs of a query and a key, over all heads, that lengths, causal rule and
  /// window leave. What an attend_mask takes out of them is not counted.
  int64_t PairsTakingPart() const { return pairs_; }
  /// "AVX3", "AVX2", ...
  std::string InstructionSet() const;
  const Tensor& output() const { return output_; }

 private:
  Runner(const Case& shape, std::unique_ptr<Engine> engine);
  static void Unchanged(Inputs&) {}
  absl::Status CreateResults(const Case& shape, DataType type,
                             const Shape& output, const Shape& weights,
                             const Shape& lse);
  void CountPairs(const ValidatedProblem& problem);
  absl::Status RunPacked();

  Inputs inputs_;
  std::unique_ptr<Engine> engine_;
  Tensor output_, weights_, lse_;  // the last two may be empty
  AttentionOutputs outputs_;
  int64_t pairs_ = 0;
};

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_RUNNER_H_
