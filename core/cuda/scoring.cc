#include "core/cuda/scoring.h"

#include <variant>

namespace attention::cuda {
namespace {

struct PartsVisitor {
  const ValidatedProblem& problem;

  ScoringParts operator()(const ScaledDotProduct&) const {
    return {.score = Score::kDot, .factor = problem.scale};
  }
  ScoringParts operator()(const Additive& additive) const {
    return {.score = Score::kAdditive,
            .query_matrix = &additive.w_q,
            .key_matrix = &additive.w_k,
            .term_weights = &additive.w_v};
  }
  ScoringParts operator()(const Gaussian& gaussian) const {
    return {.score = Score::kGaussian,
            .factor = -0.5 / (gaussian.sigma * gaussian.sigma)};
  }
  ScoringParts operator()(const Bilinear& bilinear) const {
    return {.score = Score::kDot,
            .factor = problem.scale,
            .query_matrix = &bilinear.m};
  }
};

}  // namespace

ScoringParts PartsOf(const ValidatedProblem& problem) {
  return std::visit(PartsVisitor{problem}, problem.scoring);
}

double WorkOfTerm(Score score) {
  switch (score) {
    case Score::kDot:
    case Score::kGaussian:
      return 1;
    case Score::kAdditive:
      return 16;  // a tanh
  }
  return 1;  // not reached
}

}  // namespace attention::cuda
