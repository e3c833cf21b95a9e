#ifndef ATTENTION_CORE_CPU_ROWS_ROW_PASS_H_
#define ATTENTION_CORE_CPU_ROWS_ROW_PASS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/container/fixed_array.h"
#include "core/cpu/block_rows.h"
#include "core/cpu/job_run.h"
#include "core/cpu/rows/block_states.h"
#include "core/cpu/rows/in_place_rows.h"
#include "core/cpu/rows/key_tile.h"
#include "core/cpu/rows/row_masks.h"
#include "core/cpu/rows/score_results.h"
#include "core/cpu/rows/stored_rows.h"
#include "core/cpu/rows/values.h"
#include "core/cpu/rows/weight_results.h"
#include "core/cpu/scoring/scoring.h"
#include "core/cpu/scratch.h"

namespace attention::cpu {

/// What a tile is computed in. Passes of one thread that take turns share it.
struct TileRoom {
  /// Takes its memory from `scratch`.
  TileRoom(const JobRun& run, Scratch& scratch);

  InPlaceTables in_place;
  float* scores;
  float* unnormalised;
};

class RowPass;
/// Most often one, which then is where this is.
using RowPasses = absl::FixedArray<std::optional<RowPass>, 1>;

/// Some rows of one kv group on their way through the kernels, in one pass:
/// tile after tile, then what makes results of their states.
class RowPass {
 public:
  /// For a pass other than kAttend, `remaining` has rows.count() elements, and
  /// results are stored for those that it names. Takes its memory from
  /// `scratch`; the others outlive it.
  RowPass(JobRun& run, const BlockRows& rows, Pass pass, const Pass* remaining,
          TileRoom& room, Scratch& scratch);
  RowPass(const RowPass&) = delete;  // the kernels are told where it is
  RowPass& operator=(const RowPass&) = delete;

  /// Sweeps over the keys, or over those in `keys`: at each tile all passes
  /// take turns. They are one, or such as attend the same keys of one batch
  /// entry (Plan::groups_in_turn). False once the job was stopped.
  static bool Sweep(RowPasses& passes, const KeyRange& keys);
  /// Behind it: stores the results. Rows that another pass is to compute are
  /// told in `remaining`, which is left empty without any.
  bool Finish(Remaining& remaining);
  /// In place of it, where one range of the keys was swept over: `partial`
  /// takes the rows' states.
  void StoreSplit(float* partial) const;
  /// Of Pass::kScores: scores alone (WantedOutputs::scores).
  bool RunScores();
  /// The rest, given the states of `splits` splits, in order.
  bool RunMerge(const float* partials, int64_t splits, Remaining& remaining);

 private:
  void Begin();
  template <typename Visit>
  bool ForEachTile(const Visit& visit);
  void SetTile(const KeyTile& tile, const TileOfRows& next);
  void SetTile(const KeyTile& tile) {
    SetTile(tile, {tile.Next(problem_), rows_});
  }
  void Attend(const KeyTile& tile, const TileOfRows& next);
  bool StoreWeights(const Remaining& remaining);
  SoftmaxState<double> WithSink(int64_t row, double& sum) const;
  void FinishSoftmax();
  void StoreOutput();
  void FindRemaining(Remaining& remaining) const;
  Pass PassOf(int64_t row) const;

  float SinkOf(int64_t row) const {
    return problem_.Sink(rows_.batch(), rows_.HeadOf(row));
  }

  JobRun& run_;
  const ValidatedProblem& problem_;
  const Plan& plan_;
  const Kernels& kernels_;
  const BlockRows rows_;
  const StoredRows stored_;
  std::unique_ptr<Scoring> scoring_;
  Values values_;
  InPlaceRows in_place_rows_;
  RowMasks masks_;
  BlockStates states_;
  WeightResults weights_;
  ScoreResults scores_;
  KeyRange keys_;  // that are looked at
  unsigned char** output_rows_;
  TileArgs args_ = {};
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_ROW_PASS_H_
