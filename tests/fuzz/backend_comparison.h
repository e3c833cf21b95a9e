#ifndef ATTENTION_TESTS_FUZZ_BACKEND_COMPARISON_H_
#define ATTENTION_TESTS_FUZZ_BACKEND_COMPARISON_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/problem.h"
#include "tests/support/results.h"

namespace attention::test {

/// One of the ways in which a backend computes.
struct Variant {
  std::string name;  // for a person
  std::function<absl::StatusOr<Results>(const AttentionProblem&)> run;
};

/// Computes the problem that `bytes` are (ProblemOf()) on the reference and on
/// the one of `variants`, one or more, that they name. Ends the process where
/// one of them fails or its results are not those of the tests' oracle, within
/// the contract's tolerances.
void CompareWithReference(absl::Span<const uint8_t> bytes, int64_t most_work,
                          absl::Span<const Variant> variants);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_FUZZ_BACKEND_COMPARISON_H_
