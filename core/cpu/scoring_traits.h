#ifndef ATTENTION_CORE_CPU_SCORING_TRAITS_H_
#define ATTENTION_CORE_CPU_SCORING_TRAITS_H_

#include <cstdint>

#include "core/validate.h"

namespace attention::cpu {

/// What a plan has to know of a scoring function.
struct ScoringTraits {
  /// Elements that a score sums over: widths, or hidden units.
  int64_t score_width = 0;
  /// Whether query heads that read the same keys may share packed ones; a
  /// parameter of each head's own makes other keys, or another block, of them.
  bool heads_share_parameters = true;
  /// Whether a score is a dot product with the key as it is.
  bool scores_keys_in_place = false;
  /// Gaussian scores come from a dot product, which may lose some rows
  /// (scoring/lost_rows.h). Otherwise they come from differences throughout.
  bool may_lose_rows = false;
};

ScoringTraits TraitsOf(const ValidatedProblem& problem);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_TRAITS_H_
