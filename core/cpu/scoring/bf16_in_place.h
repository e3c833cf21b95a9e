#ifndef ATTENTION_CORE_CPU_SCORING_BF16_IN_PLACE_H_
#define ATTENTION_CORE_CPU_SCORING_BF16_IN_PLACE_H_

#include <cstdint>

#include "core/cpu/kernels/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/scoring/scoring.h"
#include "core/cpu/scratch.h"
#include "core/validate.h"

namespace attention::cpu {

/// scale * q.k with products of BF16, for a plan that decodes: the few queries
/// are packed, and keys, which are read once, are scored where they lie. For
/// tiles of keys whose scales are too large (rows/in_place_rows.h) there are
/// queries of FP32, too; scores of both are counted alike.
class Bf16InPlace final : public Scoring {
 public:
  Bf16InPlace(const ValidatedProblem& problem, const Plan& plan,
              const Kernels& kernels, Scratch& scratch);

  void SetQueries(const BlockRows& rows, const KeyRange& attended) override;
  void SetKeys(const TileRows& keys, TileArgs& args) override;
  void SetInPlace(TileArgs& args) override;

 private:
  const ValidatedProblem& problem_;
  const Kernels& kernels_;
  int64_t width_;  // pairs of a query or key
  float* queries_;
  float* packed_queries_;
  int64_t fp32_stride_;
  float* fp32_queries_ = nullptr;  // where keys have scales
  int64_t sums_stride_;
  // For the kernels.
  float* key_room_;
  float* sums_;
  float* weights_;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_BF16_IN_PLACE_H_
