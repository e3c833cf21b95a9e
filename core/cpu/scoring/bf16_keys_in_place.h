#ifndef ATTENTION_CORE_CPU_SCORING_BF16_KEYS_IN_PLACE_H_
#define ATTENTION_CORE_CPU_SCORING_BF16_KEYS_IN_PLACE_H_

#include <cstdint>

#include "core/cpu/kernels/bf16/products.h"
#include "core/cpu/kernels/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/scoring/scoring.h"
#include "core/cpu/scratch.h"
#include "core/validate.h"

namespace attention::cpu {

/// scale * q.k with products of BF16, for a plan that decodes: the few queries
/// are packed, and keys, which are read once, are scored where they lie.
class Bf16KeysInPlace final : public Scoring {
 public:
  Bf16KeysInPlace(const ValidatedProblem& problem, const Plan& plan,
                  const Kernels& kernels, Scratch& scratch);

  void SetQueries(const BlockRows& rows, const KeyRange& attended) override;
  void SetKeys(const TileRows& keys, TileArgs& args) override;

 private:
  Bf16KeyRows Rows(const TileRows& keys, int64_t first, int64_t count);

  const ValidatedProblem& problem_;
  const Kernels& kernels_;
  int64_t width_;  // pairs of a query or key
  float* queries_;
  float* packed_queries_;
  float* copies_;  // of keys that cannot be read where they lie
  Bf16KeyRows* rows_;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_BF16_KEYS_IN_PLACE_H_
