#include "tests/fuzz/backend_comparison.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "tests/fuzz/expect.h"
#include "tests/fuzz/fuzzed_problem.h"
#include "tests/support/oracle.h"
#include "tests/support/own_keys.h"
#include "tests/support/packed_entries.h"
#include "tests/support/tolerance.h"

namespace attention::test {
namespace {

const Engine& Reference() {
  static const auto* const engine = MakeEngine("reference", 1).release();
  return *engine;
}

// Of a packed batch for each of its entries, else for the problem.
std::vector<Expected> ExpectedOf(const AttentionProblem& problem) {
  if (problem.query_starts) return ComputeExpectedOfEntries(problem);
  return {ComputeExpected(problem)};
}

// Whether a device may take its scores from tensor cores.
bool HasTensorCoreScores(const AttentionProblem& problem) {
  return problem.query.type != DataType::kFloat32 &&
         std::holds_alternative<ScaledDotProduct>(problem.scoring);
}

// Ends the process unless the results are within the contract's tolerances.
void Compare(const FuzzedProblem& made, const AttentionProblem& problem,
             const std::vector<Expected>& expected, const std::string& name,
             const Results& results) {
  const auto matches = problem.query_starts
                           ? MatchesEntries(problem, expected, results)
                           : Matches(problem, expected[0], results);
  if (matches) return;
  std::fprintf(stderr, "broken: on %s, %s%s\n", name.c_str(), matches.message(),
               made.description.c_str());
  std::abort();
}

}  // namespace

void CompareWithReference(absl::Span<const uint8_t> bytes, int64_t most_work,
                          absl::Span<const Variant> variants) {
  Expect(!variants.empty(), "there is something to compute on");
  const FuzzedProblem made = ProblemOf(bytes, most_work);
  const Variant& variant = variants[made.variant % variants.size()];
  AttentionProblem problem = made.owned.problem;
  const auto asked = [&made, &problem] {
    return made.own_keys ? WithOwnKeys(problem, made.own_page) : problem;
  };
  auto results = variant.run(asked());
  if (absl::IsUnimplemented(results.status())) {
    // A device's kernels leave these to the next backend.
    problem.wanted.top_k.reset();
    problem.wanted.key_weights = false;
    problem.wanted.scores.reset();
    results = variant.run(asked());
  }
  const auto reference = RunOn(Reference(), asked());
  // An option of keys that a device leaves to the next backend.
  const bool on_device = absl::StartsWith(variant.name, "cuda");
  if (on_device && absl::IsUnimplemented(results.status())) return;
  if (!reference.ok() || !results.ok()) {
    std::fprintf(stderr, "reference: %s\n%s: %s\n%s\n",
                 reference.status().ToString().c_str(), variant.name.c_str(),
                 results.status().ToString().c_str(), made.description.c_str());
    Expect(false, "any bytes are a problem that both backends compute");
  }
  const std::vector<Expected> expected = ExpectedOf(problem);
  Compare(made, problem, expected, "the reference", *reference);
  std::vector<Expected> of_variant = expected;
  if (on_device && HasTensorCoreScores(problem)) {
    for (Expected& entry : of_variant) entry = OfTensorCores(std::move(entry));
  }
  Compare(made, problem, of_variant, variant.name, *results);
}

}  // namespace attention::test
