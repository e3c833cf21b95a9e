#ifndef ATTENTION_CORE_CPU_SCORING_BF16_DOT_PRODUCT_H_
#define ATTENTION_CORE_CPU_SCORING_BF16_DOT_PRODUCT_H_

#include <cstdint>

#include "core/cpu/kernels/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/scoring/scoring.h"
#include "core/cpu/scratch.h"
#include "core/validate.h"

namespace attention::cpu {

/// scale * q.k with products of BF16, for a plan that has them, of FP16 in two
/// terms of BF16: the epilogue multiplies by the scale.
class Bf16DotProduct final : public Scoring {
 public:
  Bf16DotProduct(const ValidatedProblem& problem, const Plan& plan,
                 const Kernels& kernels, Scratch& scratch);

  void SetQueries(const BlockRows& rows, const KeyRange& attended) override;
  void SetKeys(const TileRows& keys, TileArgs& args) override;

 private:
  const ValidatedProblem& problem_;
  const Kernels& kernels_;
  int64_t terms_;
  int64_t width_;                      // pairs of a query or key, of one term
  decltype(Kernels::copy_bf16) copy_;  // into terms
  float* queries_;
  float* rows_;  // a panel of keys before they are packed
  float* keys_;
};

/// Rows of queries, and of output, that products of BF16 have room for in a
/// block of `rows` rows.
int64_t PaddedBf16Rows(int64_t rows);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_BF16_DOT_PRODUCT_H_
