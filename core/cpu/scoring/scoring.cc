#include "core/cpu/scoring/scoring.h"

#include <algorithm>
#include <limits>
#include <variant>

#include "core/cpu/bf16/bf16_dot_product.h"
#include "core/cpu/scoring/additive.h"
#include "core/cpu/scoring/bilinear.h"
#include "core/cpu/scoring/dot_product.h"
#include "core/cpu/scoring/gaussian.h"
#include "core/cpu/scoring/gaussian_differences.h"
#include "core/cpu/scoring/uniform.h"

namespace attention::cpu {
namespace {

constexpr double kLog2E = 1.4426950408889634;
// Below it a capped score counts as little beside 1 as 0 does.
constexpr double kLeastSoftcap = 0x1p-60;

// What a plan has to know of a scoring function.
struct Traits {
  int64_t score_width;
  bool heads_share_parameters = true;
  bool scores_keys_in_place = false;
  bool may_lose_rows = false;
};

struct TraitsOf {
  const ValidatedProblem& problem;

  Traits operator()(const ScaledDotProduct&) const {
    return {.score_width = problem.key_width, .scores_keys_in_place = true};
  }
  Traits operator()(const Bilinear& bilinear) const {
    return {.score_width = problem.key_width,
            .heads_share_parameters = bilinear.m.strides[0] == 0,
            .scores_keys_in_place = true};
  }
  Traits operator()(const Gaussian&) const {
    return {.score_width = problem.key_width,
            .may_lose_rows = !PrefersDifferences(problem)};
  }
  Traits operator()(const Additive& additive) const {
    return {.score_width = problem.hidden_width,
            .heads_share_parameters = additive.w_q.strides[0] == 0 &&
                                      additive.w_k.strides[0] == 0 &&
                                      additive.w_v.strides[0] == 0};
  }
};

Traits Of(const ValidatedProblem& problem) {
  return std::visit(TraitsOf{problem}, problem.scoring);
}

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
    if (plan.bf16) return A<Bf16DotProduct>();
    return A<DotProduct>();
  }
  std::unique_ptr<Scoring> operator()(const Bilinear&) const {
    return A<BilinearProduct>();
  }
  std::unique_ptr<Scoring> operator()(const Gaussian&) const {
    if (pass == Pass::kDifferences || PrefersDifferences(problem)) {
      return A<GaussianDifferences>();
    }
    return A<GaussianProduct>();
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

int64_t ScoreWidth(const ValidatedProblem& problem) {
  return Of(problem).score_width;
}
bool HeadsShareParameters(const ValidatedProblem& problem) {
  return Of(problem).heads_share_parameters;
}
bool ScoresKeysInPlace(const ValidatedProblem& problem) {
  return Of(problem).scores_keys_in_place;
}
bool MayLoseRows(const ValidatedProblem& problem) {
  return Of(problem).may_lose_rows;
}

double ScoreUnit(const ValidatedProblem& problem) {
  return problem.softcap ? 1 : kLog2E;
}

float FactorOf(double factor) {
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(factor, -kMost, kMost));
}

void FillEpilogue(const ValidatedProblem& problem, double factor,
                  Epilogue& epilogue) {
  epilogue.factor = FactorOf(factor);
  epilogue.softcap = 0.0F;
  epilogue.key_addend = nullptr;
  epilogue.row_addend = nullptr;
  if (problem.softcap) {
    epilogue.softcap = FactorOf(std::max(*problem.softcap, kLeastSoftcap));
  }
}

}  // namespace attention::cpu
