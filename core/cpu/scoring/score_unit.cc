#include "core/cpu/scoring/score_unit.h"

#include <algorithm>
#include <limits>

namespace attention::cpu {
namespace {

constexpr double kLog2E = 1.4426950408889634;
// A softcap that FP32 flushes to 0 would make 0 / 0 of a score of 0.
constexpr double kLeastSoftcap = std::numeric_limits<float>::min();

// Whether scores have to be natural.
bool UsesScores(const ValidatedProblem& problem) {
  return problem.softcap || problem.alibi_slopes || problem.bias ||
         problem.wanted.scores;
}

}  // namespace

float ScoreUnit::Exponent() const { return FactorOf(kLog2E / one); }

ScoreUnit UnitOf(const ValidatedProblem& problem) {
  return {UsesScores(problem) ? 1 : kLog2E};
}

ScoreUnit UnitOfBf16(const ValidatedProblem& problem) {
  const double exponent = kLog2E * problem.scale;
  // 0 and what is flushed to it would make NaN of a masked score, and a
  // negative one an order of scores that is not theirs.
  const bool fits = exponent >= std::numeric_limits<float>::min();
  return {fits && !UsesScores(problem) ? 1 / problem.scale : 1};
}

float FactorOf(double factor) {
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(factor, -kMost, kMost));
}

void FillEpilogue(const ValidatedProblem& problem, double factor,
                  Epilogue& epilogue) {
  epilogue.factor = FactorOf(factor);
  epilogue.row_addend = nullptr;
  epilogue.softcap = problem.softcap
                         ? FactorOf(std::max(*problem.softcap, kLeastSoftcap))
                         : 0.0F;
}

}  // namespace attention::cpu
