#ifndef ATTENTION_CORE_CPU_ROWS_ROW_PASS_H_
#define ATTENTION_CORE_CPU_ROWS_ROW_PASS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "core/cpu/bf16/bf16_dot_product.h"
#include "core/cpu/job_run.h"
#include "core/cpu/rows/block_rows.h"
#include "core/cpu/rows/kept_weights.h"
#include "core/cpu/rows/key_tile.h"
#include "core/cpu/rows/row_masks.h"
#include "core/cpu/rows/values.h"
#include "core/cpu/scoring/scoring.h"
#include "core/cpu/scratch.h"
#include "core/softmax_state.h"

namespace attention::cpu {

/// Rows of a block, each with the pass that it is still to be computed in, or
/// kAttend.
using Remaining = std::vector<Pass>;

/// Some rows of one kv group on their way through the kernels, in one pass.
class RowPass {
 public:
  /// For a pass other than kAttend, `remaining` has rows.count() elements, and
  /// results are stored for those that it names. Takes its memory from
  /// `scratch`; the others outlive it.
  RowPass(JobRun& run, const BlockRows& rows, Pass pass, const Pass* remaining,
          Scratch& scratch)
      : run_(run),
        problem_(run.problem()),
        plan_(run.plan()),
        kernels_(run.kernels()),
        rows_(rows),
        pass_(pass),
        remaining_(remaining),
        bf16_(plan_.bf16 && pass == Pass::kAttend),
        scoring_(MakeScoring(problem_, plan_, kernels_, pass, scratch)),
        values_(problem_, plan_, kernels_, pass, scratch),
        masks_(problem_, plan_, rows_, pass, scratch),
        kept_(problem_, plan_, kernels_, rows_.count(), scratch),
        keys_{0, problem_.key_length} {
    TakeMemory(scratch);
  }

  /// Everything, from the queries to the stored results. Rows that another pass
  /// is to compute are told in `remaining`, which is left empty without any.
  bool Run(Remaining& remaining);
  /// One range of the keys alone; `partial` takes the rows' states.
  bool RunSplit(int64_t split, float* partial);
  /// The rest, given the states of all splits, in order.
  bool RunMerge(const float* partials, Remaining& remaining);

 private:
  using Softmax = SoftmaxState<double, PowersOfTwo>;

  void TakeMemory(Scratch& scratch);
  void Begin();
  template <typename Visit>
  bool ForEachTile(const Visit& visit);
  void SetKeys(const KeyTile& tile);
  void AttendTile(const KeyTile& tile);
  void DecodeTile(const KeyTile& tile);
  bool Sweep();
  bool Finish(Remaining& remaining);
  void KeepWeights(const TileWeights& weights);
  bool StoreWeights();
  bool SweepWeights(bool of_nan_rows);
  Softmax WithSink(int64_t row, double& sum) const;
  void FinishSoftmax();
  void StoreOutput();
  void StoreLogSumExp(int64_t row, double lse) const;
  Pass PassOf(int64_t row) const;

  bool IsStored(int64_t row) const {
    return remaining_ == nullptr || remaining_[row] == pass_;
  }
  float SinkOf(int64_t row) const {
    return problem_.Sink(rows_.batch(), rows_.HeadOf(row));
  }
  double ShiftOf(int64_t row) const {
    return sum_[row] == 0 ? 0 : scoring_->LogSumExpShift(row);
  }
  float* WeightRow(int64_t row) const {
    return reinterpret_cast<float*>(run_.outputs().weights.data) +
           rows_.ResultOf(row) * problem_.key_length;
  }
  int64_t OutputRows() const {
    return bf16_ ? PaddedBf16Rows(plan_.row_block) : plan_.row_block;
  }

  JobRun& run_;
  const ValidatedProblem& problem_;
  const Plan& plan_;
  const Kernels& kernels_;
  const BlockRows rows_;
  const Pass pass_;
  const Pass* const remaining_;
  const bool bf16_;
  std::unique_ptr<Scoring> scoring_;
  Values values_;
  RowMasks masks_;
  KeptWeights kept_;
  KeyRange keys_;           // that are looked at
  bool last_tile_ = false;  // of those that weights are kept of

  // Of each row.
  float* max_ = nullptr;
  double* sum_ = nullptr;
  float* inverse_ = nullptr;
  float* output_ = nullptr;
  float** weight_rows_ = nullptr;
  unsigned char** output_rows_ = nullptr;

  TileArgs args_ = {};
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_ROW_PASS_H_
