#ifndef ATTENTION_CORE_CPU_SCORING_BILINEAR_H_
#define ATTENTION_CORE_CPU_SCORING_BILINEAR_H_

#include "core/cpu/scoring/dot_product.h"
#include "core/cpu/scoring/projection.h"

namespace attention::cpu {

/// scale * q M k: the dot product of q M and k.
class BilinearProduct final : public DotProduct {
 public:
  BilinearProduct(const ValidatedProblem& problem, const Plan& plan,
                  const Kernels& kernels, Scratch& scratch);

  void SetQueries(const BlockRows& rows, const KeyRange& attended) override;

 private:
  FloatRows Queries(const BlockRows& rows, int64_t first,
                    int64_t columns) override;

  Projection m_;
  int64_t stride_;
  float* projected_;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_BILINEAR_H_
