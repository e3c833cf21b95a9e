// The cpu backend, on one of this processor's instruction sets, against the
// reference on problems made of bytes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "core/cpu/cpu_backend.h"
#include "tests/fuzz/expect.h"
#include "tests/fuzz/fuzzed_problem.h"
#include "tests/support/oracle.h"
#include "tests/support/results.h"
#include "tests/support/tolerance.h"
#include "tests/unit/cpu/target_runner.h"

namespace attention::test {
namespace {

// Up to this largest sum of |terms| of a score, FP32's rounding of the scores
// moves a weight by no more than about a tenth of itself, and what the
// tolerances of semantics.md say to first order holds.
constexpr double kResolvedKappa = 1e5;
// Up to this one no score, nor what it is a sum of, leaves FP32's range.
constexpr double kRepresentableKappa = 1e30;

// Kept from run to run: threads, and what the instruction sets are.
TargetRunner& RunnerOf(uint8_t choice) {
  static auto* const runners = [] {
    auto* all = new std::vector<std::unique_ptr<TargetRunner>>;
    for (const std::string& target : CpuTargets()) {
      all->push_back(std::make_unique<TargetRunner>(target));
    }
    return all;
  }();
  Expect(!runners->empty(), "there are kernels for this processor");
  return *(*runners)[choice % runners->size()];
}

const Engine& Reference() {
  static const auto* const engine = MakeEngine("reference", 1).release();
  return *engine;
}

// Both backends' answers, and what is known about their rows.
class Comparison {
 public:
  Comparison(const FuzzedProblem& made, const Results& cpu,
             const Results& reference)
      : made_(made),
        cpu_(cpu),
        reference_(reference),
        expected_(ComputeExpected(made.owned.problem)) {}

  void Run() const {
    const DataType type = made_.owned.problem.query.type;
    CompareAll("output", cpu_.output, reference_.output,
               OutputTolerances(expected_, type), /*of_values=*/true);
    if (reference_.weights) {
      CompareAll("weights", *cpu_.weights, *reference_.weights,
                 WeightTolerances(expected_));
    }
    if (reference_.lse) {
      CompareAll("lse", *cpu_.lse, *reference_.lse, LseTolerances(expected_));
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
  void CompareAll(const char* name, const Tensor& cpu, const Tensor& reference,
                  const std::vector<double>& tolerances,
                  bool of_values = false) const {
    if (cpu.type() != reference.type() || cpu.shape() != reference.shape() ||
        static_cast<size_t>(cpu.element_count()) != tolerances.size()) {
      Fail(name, 0, 0, 0, 0);
    }
    const double limit = cpu.type() == DataType::kFloat16 ? 0x1p16 : 0x1p128;
    const std::vector<double> ours = cpu.ToDoubles();
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

  [[noreturn]] void Fail(const char* name, size_t element, double cpu,
                         double reference, double tolerance) const {
    std::fprintf(stderr,
                 "broken: %s[%zu] is %.17g on %s and %.17g on the reference, "
                 "which differ by more than %g, or in type or shape%s\n",
                 name, element, cpu, TargetOf().c_str(), reference, tolerance,
                 made_.description.c_str());
    std::abort();
  }

  std::string TargetOf() const {
    const std::vector<std::string> targets = CpuTargets();
    return targets[made_.target % targets.size()];
  }

  const FuzzedProblem& made_;
  const Results& cpu_;
  const Results& reference_;
  const Expected expected_;
};

void Run(const uint8_t* data, size_t size) {
  const FuzzedProblem made = ProblemOf({data, size});
  const AttentionProblem& problem = made.owned.problem;
  const auto reference = RunOn(Reference(), problem);
  const auto cpu = RunnerOf(made.target).Run(problem);
  if (!reference.ok() || !cpu.ok()) {
    std::fprintf(stderr, "reference: %s\ncpu: %s\n%s\n",
                 reference.status().ToString().c_str(),
                 cpu.status().ToString().c_str(), made.description.c_str());
    Expect(false, "any bytes are a problem that both backends compute");
  }
  Comparison(made, *cpu, *reference).Run();
}

}  // namespace
}  // namespace attention::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  attention::test::Run(data, size);
  return 0;
}
