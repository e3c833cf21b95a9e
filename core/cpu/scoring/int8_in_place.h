#ifndef ATTENTION_CORE_CPU_SCORING_INT8_IN_PLACE_H_
#define ATTENTION_CORE_CPU_SCORING_INT8_IN_PLACE_H_

#include <cstdint>

#include "core/cpu/kernels/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/scoring/scoring.h"
#include "core/cpu/scratch.h"
#include "core/validate.h"

namespace attention::cpu {

/// scale * q.k of INT8 keys, for a plan that decodes them with products of
/// INT8: queries become digits (kernels/bf16/int8_products.h), keys are scored
/// where they lie. Queries that are not what their digits say, and tiles of
/// keys whose scales are too large (rows/in_place_rows.h), are left to FP32.
class Int8InPlace final : public Scoring {
 public:
  Int8InPlace(const ValidatedProblem& problem, const Plan& plan,
              const Kernels& kernels, Scratch& scratch);

  void SetQueries(const BlockRows& rows, const KeyRange& attended) override;
  void SetKeys(const TileRows& keys, TileArgs& args) override;
  void SetInPlace(TileArgs& args) override;

 private:
  const ValidatedProblem& problem_;
  const Kernels& kernels_;
  int64_t stride_;  // floats from one query to the next
  float* queries_;
  int64_t digits_of_rows_;
  int8_t* digits_;
  float* largest_;  // of each query
  int* exponents_;
  bool exact_ = false;
  // For the kernels.
  unsigned char* key_room_;
  unsigned char* value_room_;
  int64_t sums_stride_;
  float* sums_;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_INT8_IN_PLACE_H_
