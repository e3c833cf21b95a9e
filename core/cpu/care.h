#ifndef ATTENTION_CORE_CPU_CARE_H_
#define ATTENTION_CORE_CPU_CARE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "core/cpu/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/prepare.h"
#include "core/cpu/row_id.h"
#include "core/cpu/scratch.h"
#include "core/validate.h"

namespace attention::cpu {

/// Where the magnitudes of no score's terms add up to this, FP32 sums take more
/// than the tolerance has.
inline constexpr double kFlat = 0.5;

/// Decides which rows of a block FP32 does not serve. What it says of a row
/// follows from that row and its keys, whatever else is in the block.
class CareDecision {
 public:
  /// Takes its memory from `scratch`; `prepare` holds the block's queries.
  CareDecision(const ValidatedProblem& problem, const Plan& plan,
               const Kernels& kernels, Prepare& prepare, Scratch& scratch);

  /// The keys that the block's rows read.
  void SetKeys(int64_t batch, int64_t kv_head) {
    batch_ = batch;
    kv_head_ = kv_head;
  }

  /// A row whose softmax is known.
  struct Row {
    int64_t index;  // in the block
    RowId id;
    KeyRange range;
    double max;  // its largest score, natural
  };

  /// False where a row's largest score, natural, already says that neither of
  /// the following holds of it.
  bool MayNeed(double max) const;
  /// True where all scores are so close to 0 that the row's tolerance has room
  /// for less than the rounding of FP32 sums.
  bool IsFlat(const Row& row);
  /// Gaussian scoring by a dot product: true where the row lies farther from
  /// the block's centre than from its keys, so that its scores are differences
  /// of larger numbers than its tolerance has room for.
  bool LosesToCentre(const Row& row);

 private:
  bool MayBeFlat(double max) const;
  void LoadSamples();
  // The sum of the magnitudes of the terms of a score, given the key in FP32;
  // 0 where a mask leaves the key out.
  double SumOfMagnitudes(const Row& row, int64_t key, const float* values);
  double SumOfMagnitudes(const Row& row, int64_t key);
  // Whether something holds of such sums of some of the row's keys.
  bool AllSums(const Row& row, absl::FunctionRef<bool(double)> holds);
  void LoadKey(int64_t key, float* to) const;

  const ValidatedProblem& problem_;
  const Plan& plan_;
  const Kernels& kernels_;
  Prepare& prepare_;
  int64_t batch_ = 0;
  int64_t kv_head_ = 0;

  // Some keys, evenly spaced over all of them, in FP32.
  int64_t stride_;
  int64_t step_ = 1;
  float* samples_;
  float* key_;
  bool loaded_ = false;
  double largest_ = 0;  // of their elements, by magnitude
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_CARE_H_
