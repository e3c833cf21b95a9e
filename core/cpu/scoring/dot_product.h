#ifndef ATTENTION_CORE_CPU_SCORING_DOT_PRODUCT_H_
#define ATTENTION_CORE_CPU_SCORING_DOT_PRODUCT_H_

#include <cstdint>

#include "core/cpu/scoring/packed_scoring.h"
#include "core/cpu/scoring/row_widener.h"

namespace attention::cpu {

/// scale * q.k, the scale being multiplied into the queries.
class DotProduct : public PackedScoring {
 public:
  DotProduct(const ValidatedProblem& problem, const Plan& plan,
             const Kernels& kernels, Scratch& scratch);

  void SetQueries(const BlockRows& rows, const KeyRange& attended) override;
  void SetInPlace(TileArgs& args) final;

 protected:
  /// Columns first ... of what takes the queries' place in the dot product.
  virtual FloatRows Queries(const BlockRows& rows, int64_t first,
                            int64_t columns);
  void PackKeys(const TileRows& keys, const Part& part, float* packed,
                TileArgs& args) final;

  RowWidener queries_;

 private:
  RowWidener keys_;
  float* row_queries_ = nullptr;  // row-major, for a plan that decodes
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_DOT_PRODUCT_H_
