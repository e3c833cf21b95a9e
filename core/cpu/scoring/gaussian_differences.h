#ifndef ATTENTION_CORE_CPU_SCORING_GAUSSIAN_DIFFERENCES_H_
#define ATTENTION_CORE_CPU_SCORING_GAUSSIAN_DIFFERENCES_H_

#include <cstdint>

#include "core/cpu/scoring/packed_scoring.h"
#include "core/cpu/scoring/row_widener.h"

namespace attention::cpu {

/// -|q - k|^2 / (2 sigma^2) by differences, of which nothing cancels.
class GaussianDifferences final : public PackedScoring {
 public:
  GaussianDifferences(const ValidatedProblem& problem, const Plan& plan,
                      const Kernels& kernels, Scratch& scratch);

  void SetQueries(const BlockRows& rows, const KeyRange& attended) override;

 private:
  void PackKeys(const TileRows& keys, const Part& part, float* packed,
                TileArgs& args) override;

  RowWidener queries_;
  RowWidener keys_;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_GAUSSIAN_DIFFERENCES_H_
