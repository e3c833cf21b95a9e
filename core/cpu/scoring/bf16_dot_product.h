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
/// terms of BF16: the epilogue multiplies by the scale. Keys of one byte are
/// packed as BF16; what is left of their scales (Kernels::copy_bytes_as_bf16)
/// multiplies their scores.
class Bf16DotProduct final : public Scoring {
 public:
  Bf16DotProduct(const ValidatedProblem& problem, const Plan& plan,
                 const Kernels& kernels, Scratch& scratch);

  void SetQueries(const BlockRows& rows, const KeyRange& attended) override;
  void SetKeys(const TileRows& keys, TileArgs& args) override;

 private:
  void CopyKeys(const RowSource& from, int64_t first, int64_t count, float* to);

  const ValidatedProblem& problem_;
  const Kernels& kernels_;
  int64_t terms_;
  int64_t width_;                      // pairs of a query or key, of one term
  decltype(Kernels::copy_bf16) copy_;  // into terms
  float* queries_;
  float* rows_;  // a panel of keys before they are packed
  float* keys_;
  float* scales_ = nullptr;  // what keys of one byte have left of theirs
};

/// Rows of queries, and of output, that products of BF16 have room for in a
/// block of `rows` rows.
int64_t PaddedBf16Rows(int64_t rows);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_BF16_DOT_PRODUCT_H_
