#ifndef ATTENTION_TESTS_PARITY_GOLDEN_CASES_H_
#define ATTENTION_TESTS_PARITY_GOLDEN_CASES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/problem.h"
#include "core/tensor.h"
#include "gtest/gtest.h"
#include "tests/support/oracle.h"

namespace attention::test {

/// One computation of one framework: its inputs and what came out.
struct GoldenCase {
  std::string framework;                  // the file's name: "jax"
  std::string name;                       // "multi_head/sliding_window"
  std::map<std::string, Tensor> tensors;  // "query", "weights", ...
};

/// Every case of every file in tests/data; a masked softmax as the attention
/// that has its scores and weights (AttentionOverScores()). An error where a
/// file cannot be read.
absl::StatusOr<std::vector<GoldenCase>> LoadGoldenCases();

/// A case's problem, with views into its tensors. INVALID_ARGUMENT where the
/// case has a tensor that nothing here understands, so that none is passed
/// over.
absl::StatusOr<AttentionProblem> GoldenProblem(const GoldenCase& golden);

/// Whether outputs, and weights where the case has them, are those of the case
/// within 2e-6 * (|o| + sum(w |v|)); the sums are the oracle's. A weight may be
/// off by a rounding of its score as well.
::testing::AssertionResult MatchesGolden(const GoldenCase& golden,
                                         const Expected& expected,
                                         absl::Span<const double> output,
                                         absl::Span<const double> weights);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_PARITY_GOLDEN_CASES_H_
