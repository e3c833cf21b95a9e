#ifndef ATTENTION_BENCHMARKS_STEADINESS_VALUES_H_
#define ATTENTION_BENCHMARKS_STEADINESS_VALUES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "benchmarks/attention_steady/turns.h"
#include "benchmarks/shape.h"

namespace attention::bench {

/// What a case's numbers cost beside normally distributed ones.
struct ValuesRatio {
  std::string scoring;
  std::string values;  // "times 0.1", "zeros", ...
  std::string where;   // "prefill FP32", ...
  double ratio = 0;
  double normal_seconds = 0;
  double wanted = 0;  // the ratio is to be no larger
};

/// Every kind of values, with every shape and type, for one scoring function.
/// `case_of_backend` says with which backend and how many threads. Reports
/// progress on standard error.
absl::StatusOr<std::vector<ValuesRatio>> MeasureValues(
    const std::string& scoring, const Case& case_of_backend,
    const Effort& effort);

/// Parameters of additive and bilinear scoring as PyTorch's Linear has them at
/// first: uniform within 1 / sqrt(inputs).
void MakeParametersUniform(const Case& shape, Inputs& inputs);

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_STEADINESS_VALUES_H_
