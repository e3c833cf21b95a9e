#include "tests/fuzz/backend_comparison.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/fuzz/expect.h"
#include "tests/fuzz/fuzzed_problem.h"
#include "tests/support/oracle.h"
#include "tests/support/tolerance.h"

namespace attention::test {
namespace {

// Up to this largest sum of |terms| of a score, FP32's rounding of the scores
// moves a weight by no more than about a tenth of itself, and what the
// tolerances of semantics.md say to first order holds.
constexpr double kResolvedKappa = 1e5;
// Up to this one no score, nor what it is a sum of, leaves FP32's range.
constexpr double kRepresentableKappa = 1e30;

const Engine& Reference() {
  static const auto* const engine = MakeEngine("reference", 1).release();
  return *engine;
}

// Both backends' answers, and what is known about their rows.
class Comparison {
 public:
  Comparison(const FuzzedProblem& made, const std::string& name,
             const Results& results, const Results& reference)
      : made_(made),
        name_(name),
        results_(results),
        reference_(reference),
        expected_(ComputeExpected(made.owned.problem)) {}

  void Run() const {
    const DataType type = made_.owned.problem.query.type;
    CompareAll("output", results_.output, reference_.output,
               OutputTolerances(expected_, type), /*of_values=*/true);
    if (reference_.weights) {
      CompareAll("weights", *results_.weights, *reference_.weights,
                 WeightTolerances(expected_));
    }
    if (reference_.lse) {
      CompareAll("lse", *results_.lse, *reference_.lse,
                 LseTolerances(expected_));
    }
  }

 private:
  // What outputs lose where the tolerances have no room: rounding in FP64, of
  // huge values that cancel under scores near 0, and subnormal numbers, which a
  // processor's BF16 products take for 0.
  double Unavoidable() const {
    double largest = 0;
    for (const KeyValueBlock& block : made_.owned.problem.key_value) {
      for (const double value : Materialize(block.value).ToDoubles()) {
        if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
      }
    }
    const bool is_bf16 = made_.owned.problem.query.type == DataType::kBFloat16;
    return 0x1p-50 * largest + (is_bf16 ? 0x1p-126 : 0);
  }

  // Each backend is within the tolerance of the truth, so that they are within
  // twice that of each other. NaN and infinities must be the same, but where a
  // finite result is so large that its rounding may be an infinity.
  void CompareAll(const char* name, const Tensor& computed,
                  const Tensor& reference,
                  const std::vector<double>& tolerances,
                  bool of_values = false) const {
    if (computed.type() != reference.type() ||
        computed.shape() != reference.shape() ||
        static_cast<size_t>(computed.element_count()) != tolerances.size()) {
      Fail(name, 0, 0, 0, 0);
    }
    const double limit =
        computed.type() == DataType::kFloat16 ? 0x1p16 : 0x1p128;
    const std::vector<double> ours = computed.ToDoubles();
    const std::vector<double> theirs = reference.ToDoubles();
    const size_t per_row =
        ours.empty() ? 1 : ours.size() / expected_.kappa.size();
    for (size_t n = 0; n < ours.size(); ++n) {
      const double kappa = expected_.kappa[n / per_row];
      if (std::isfinite(kappa) && kappa > kRepresentableKappa) continue;
      const double a = std::clamp(ours[n], -limit, limit);
      const double b = std::clamp(theirs[n], -limit, limit);
      if (a == b || (std::isnan(a) && std::isnan(b))) continue;
      // An infinite value of a weight near 1e-310: NaN where that is 0.
      if (!std::isfinite(ours[n]) && !std::isfinite(theirs[n])) continue;
      const bool resolved =
          kappa <= kResolvedKappa && !std::isnan(tolerances[n]);
      const double tolerance = resolved ? 2 * tolerances[n] : HUGE_VAL;
      if (std::abs(a - b) <= tolerance) continue;
      if (!of_values || !(std::abs(a - b) <= tolerance + Unavoidable())) {
        Fail(name, n, ours[n], theirs[n], tolerance);
      }
    }
  }

  [[noreturn]] void Fail(const char* name, size_t element, double ours,
                         double reference, double tolerance) const {
    std::fprintf(stderr,
                 "broken: %s[%zu] is %.17g on %s and %.17g on the reference, "
                 "which differ by more than %g, or in type or shape%s\n",
                 name, element, ours, name_.c_str(), reference, tolerance,
                 made_.description.c_str());
    std::abort();
  }

  const FuzzedProblem& made_;
  const std::string& name_;
  const Results& results_;
  const Results& reference_;
  const Expected expected_;
};

}  // namespace

void CompareWithReference(absl::Span<const uint8_t> bytes, int64_t most_work,
                          absl::Span<const Variant> variants) {
  Expect(!variants.empty(), "there is something to compute on");
  const FuzzedProblem made = ProblemOf(bytes, most_work);
  const Variant& variant = variants[made.variant % variants.size()];
  const AttentionProblem& problem = made.owned.problem;
  const auto reference = RunOn(Reference(), problem);
  const auto results = variant.run(problem);
  if (!reference.ok() || !results.ok()) {
    std::fprintf(stderr, "reference: %s\n%s: %s\n%s\n",
                 reference.status().ToString().c_str(), variant.name.c_str(),
                 results.status().ToString().c_str(), made.description.c_str());
    Expect(false, "any bytes are a problem that both backends compute");
  }
  Comparison(made, variant.name, *results, *reference).Run();
}

}  // namespace attention::test
