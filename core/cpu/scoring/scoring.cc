#include "core/cpu/scoring/scoring.h"

#include <variant>

#include "core/cpu/scoring/additive.h"
#include "core/cpu/scoring/bf16_dot_product.h"
#include "core/cpu/scoring/bf16_in_place.h"
#include "core/cpu/scoring/bilinear.h"
#include "core/cpu/scoring/dot_product.h"
#include "core/cpu/scoring/gaussian.h"
#include "core/cpu/scoring/gaussian_differences.h"
#include "core/cpu/scoring/int8_in_place.h"
#include "core/cpu/scoring/uniform.h"
#include "core/cpu/scoring_traits.h"

namespace attention::cpu {
namespace {

struct Make {
  const ValidatedProblem& problem;
  const Plan& plan;
  const Kernels& kernels;
  Pass pass;
  Scratch& scratch;

  template <typename T>
  std::unique_ptr<Scoring> A() const {
    return std::make_unique<T>(problem, plan, kernels, scratch);
  }

  std::unique_ptr<Scoring> operator()(const ScaledDotProduct&) const {
    if (plan.int8_digits && pass == Pass::kAttend) return A<Int8InPlace>();
    if (plan.bf16_terms > 0 && pass == Pass::kAttend) {
      return plan.decode ? A<Bf16InPlace>() : A<Bf16DotProduct>();
    }
    return A<DotProduct>();
  }
  std::unique_ptr<Scoring> operator()(const Bilinear&) const {
    return A<BilinearProduct>();
  }
  std::unique_ptr<Scoring> operator()(const Gaussian&) const {
    if (pass == Pass::kAttend && TraitsOf(problem).may_lose_rows) {
      return A<GaussianProduct>();
    }
    return A<GaussianDifferences>();
  }
  std::unique_ptr<Scoring> operator()(const Additive&) const {
    return A<AdditiveScoring>();
  }
};

}  // namespace

std::unique_ptr<Scoring> MakeScoring(const ValidatedProblem& problem,
                                     const Plan& plan, const Kernels& kernels,
                                     Pass pass, Scratch& scratch) {
  if (pass == Pass::kUniform) return std::make_unique<UniformScoring>();
  return std::visit(Make{problem, plan, kernels, pass, scratch},
                    problem.scoring);
}

}  // namespace attention::cpu
