#ifndef ATTENTION_CORE_CPU_SCORING_SCORE_UNIT_H_
#define ATTENTION_CORE_CPU_SCORING_SCORE_UNIT_H_

#include "core/cpu/kernels/tile_args.h"
#include "core/validate.h"

namespace attention::cpu {

/// What the kernels count scores in, and the one place that knows of log2(e).
///
/// Processors compute 2^x, so a softmax is one of 2^(exponent * (score - max)).
/// The exponent costs a multiplication for every score, unless it is 1. So
/// where nothing is added to a score after QK, QK counts scores in a unit that
/// makes it 1: the factor goes into the queries, which are few. Where a
/// softcap, ALiBi or a bias follows, which are natural, so are scores, and stay
/// as large as FP32 has them: a bias of the lowest finite float masks nothing.
/// They are natural, too, where the caller wants to have them.
struct ScoreUnit {
  /// A natural score of 1, as the kernels count it.
  double one;

  /// RowStates::exponent.
  float Exponent() const;
  double Natural(double score) const { return score / one; }
};

/// Of scores that a scoring function may scale as it likes.
ScoreUnit UnitOf(const ValidatedProblem& problem);

/// Of products of BF16, which cannot take a factor into the queries. The
/// products themselves are the scores where the exponent can make up for it.
ScoreUnit UnitOfBf16(const ValidatedProblem& problem);

/// A factor of scores in FP32, at most its largest number.
float FactorOf(double factor);

/// The epilogue of scores that need nothing but `factor` and the problem's
/// softcap. What masks need is left as it is.
void FillEpilogue(const ValidatedProblem& problem, double factor,
                  Epilogue& epilogue);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_SCORE_UNIT_H_
