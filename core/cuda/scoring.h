#ifndef ATTENTION_CORE_CUDA_SCORING_H_
#define ATTENTION_CORE_CUDA_SCORING_H_

#include "core/cuda/kernels/arguments.h"
#include "core/validate.h"

namespace attention::cuda {

/// What the host does for a scoring function. The terms that kernels add up are
/// in kernels/score-inl.h.
struct ScoringParts {
  Score score = Score::kDot;
  double factor = 1;  // of the sum of terms
  // Parameters as ValidatedProblem has them; null where there is none.
  const TensorView* query_matrix = nullptr;  // (Hq, Dq, width of a term's rows)
  const TensorView* key_matrix = nullptr;    // (Hq, Dk, likewise)
  const TensorView* term_weights = nullptr;  // (Hq, likewise)
};

/// The views are the problem's.
ScoringParts PartsOf(const ValidatedProblem& problem);

/// What a term costs, in multiply-adds.
double WorkOfTerm(Score score);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_SCORING_H_
