#include "core/cpu/scoring_traits.h"

#include <variant>

namespace attention::cpu {
namespace {

// Up to here differences cost less than a dot product and what belongs to it.
constexpr int64_t kWidestDifferences = 8;
constexpr int64_t kMostQueriesOfDifferences = 8;
// 1 / sigma^2 and norms stay within FP32's range between these.
constexpr double kLeastSigma = 1e-10;
constexpr double kMostSigma = 1e10;

struct Traits {
  const ValidatedProblem& problem;

  ScoringTraits operator()(const ScaledDotProduct&) const {
    return {.score_width = problem.key_width, .scores_keys_in_place = true};
  }
  ScoringTraits operator()(const Bilinear& bilinear) const {
    return {.score_width = problem.key_width,
            .heads_share_parameters = bilinear.m.strides[0] == 0,
            .scores_keys_in_place = true};
  }
  ScoringTraits operator()(const Gaussian& gaussian) const {
    const bool differences =
        problem.key_width <= kWidestDifferences ||
        problem.query_length <= kMostQueriesOfDifferences ||
        gaussian.sigma < kLeastSigma || gaussian.sigma > kMostSigma;
    return {.score_width = problem.key_width, .may_lose_rows = !differences};
  }
  ScoringTraits operator()(const Additive& additive) const {
    return {.score_width = problem.hidden_width,
            .heads_share_parameters = additive.w_q.strides[0] == 0 &&
                                      additive.w_k.strides[0] == 0 &&
                                      additive.w_v.strides[0] == 0};
  }
};

}  // namespace

ScoringTraits TraitsOf(const ValidatedProblem& problem) {
  return std::visit(Traits{problem}, problem.scoring);
}

}  // namespace attention::cpu
