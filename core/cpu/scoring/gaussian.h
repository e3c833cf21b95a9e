#ifndef ATTENTION_CORE_CPU_SCORING_GAUSSIAN_H_
#define ATTENTION_CORE_CPU_SCORING_GAUSSIAN_H_

#include <cstdint>

#include "core/cpu/scoring/lost_rows.h"
#include "core/cpu/scoring/packed_scoring.h"
#include "core/cpu/scoring/row_widener.h"

namespace attention::cpu {

/// -|q - k|^2 / (2 sigma^2) by a dot product: with q' and k' the query and the
/// key less a centre, it is (q'.k' - |k'|^2 / 2 - |q'|^2 / 2) / sigma^2. What
/// only the row adds cancels in the softmax.
///
/// The centre lies amid the keys, for the nearer they are the smaller are the
/// numbers whose difference a score is: it is their mean where they are few,
/// else in every direction the median of three means of four of them, so that
/// one which lies far from the others does not move it (the median of means of
/// Nemirovsky and Yudin, 1983). Rows for which that is not good enough are lost
/// (lost_rows.h).
class GaussianProduct final : public PackedScoring {
 public:
  GaussianProduct(const ValidatedProblem& problem, const Plan& plan,
                  const Kernels& kernels, Scratch& scratch);

  void SetQueries(const BlockRows& rows, const KeyRange& attended) override;
  double LogSumExpShift(int64_t row) const override;
  bool LostRow(int64_t row, double sum) const override;

 private:
  void PackKeys(const TileRows& keys, const Part& part, float* packed,
                TileArgs& args) override;
  void SetCentre(const BlockRows& rows, const KeyRange& attended);
  FloatRows Centre(const FloatRows& rows, int64_t count, const Part& part,
                   double* squared_norms);

  double sigma_;
  RowWidener queries_;
  RowWidener keys_;
  int64_t centre_stride_;
  float* centre_;
  float* centred_;     // rows of a part
  float* key_addend_;  // per key of a tile
  double* key_norms_;
  double* row_shift_;  // -|q'|^2 / (2 sigma^2)
  float* row_addend_;
  LostRows lost_rows_;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_GAUSSIAN_H_
