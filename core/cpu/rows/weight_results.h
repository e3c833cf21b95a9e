#ifndef ATTENTION_CORE_CPU_ROWS_WEIGHT_RESULTS_H_
#define ATTENTION_CORE_CPU_ROWS_WEIGHT_RESULTS_H_

#include <cstdint>

#include "core/cpu/block_rows.h"
#include "core/cpu/kernels/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/rows/kept_weights.h"
#include "core/cpu/rows/key_tile.h"
#include "core/cpu/rows/stored_rows.h"
#include "core/cpu/scratch.h"
#include "core/result_places.h"
#include "core/top_k.h"
#include "core/validate.h"

namespace attention::cpu {

/// The weights of a block's rows on their way to the caller, and what is made
/// of them: the largest of each row, and what each key receives. Weights alone
/// are kept while the tiles are computed, if the plan has room for them. All
/// else is computed by a second sweep over the tiles.
class WeightResults {
 public:
  /// Takes its memory from `scratch`; the others outlive it. `key_sums`: what
  /// the block's rows add their weights to (KeySums).
  WeightResults(const ValidatedProblem& problem, const Plan& plan,
                const Kernels& kernels, const BlockRows& rows,
                const StoredRows& stored, const ResultPlaces& places,
                double* key_sums, Scratch& scratch);

  /// Before each tile of the first sweep, for a plan that keeps weights.
  /// `last`: no tile follows.
  void BeginTile(const KeyTile& tile, bool last);

  /// Takes weights of the tile from the kernels.
  /// With the last tile a row's softmax is known: sum_of(row) gives its sum,
  /// the sink counted, and all its weights go to the caller.
  template <typename SumOf>
  void Keep(const TileWeights& weights, const RowStates& states,
            const SumOf& sum_of) {
    if (!last_tile_) return kept_.Keep(weights, states.max);
    for (int64_t n = 0; n < weights.rows; ++n) {
      const int64_t row = weights.first_row + n;
      if (!stored_.Has(row)) continue;
      kept_.Store(row, weights, states.max[row], sum_of(row), states.exponent,
                  RowOf(row));
    }
  }

  /// After the first sweep, given the rows' sums, sinks counted: true where
  /// weights are still to be computed. is_final(row): no other pass computes
  /// the row again. StoreTile() then takes those of every tile, and Finish()
  /// comes last in any case.
  template <typename IsFinal>
  bool NeedsSweep(const double* sum, const IsFinal& is_final) {
    if (!problem_.wanted.AnyOfWeights()) return false;
    if (plan_.keeps_weights) KeptWeights::FlushStores();
    bool needs = false;
    for (int64_t r = 0; r < rows_.count(); ++r) {
      swept_[r] = 0;
      finished_[r] = stored_.Has(r) && is_final(r) ? 1 : 0;
      if (finished_[r] != 0 && BeginSweep(r, sum[r])) needs = true;
    }
    return needs;
  }
  void StoreTile(const KeyTile& tile, const TileArgs& args);
  void Finish();

 private:
  bool BeginSweep(int64_t row, double sum);
  void Take(const RowWeights& weights);
  float* RowOf(int64_t row) const {
    return reinterpret_cast<float*>(
        places_.Weights(rows_.batch(), rows_.HeadOf(row), rows_.QueryOf(row)));
  }

  const ValidatedProblem& problem_;
  const Plan& plan_;
  const Kernels& kernels_;
  const BlockRows& rows_;
  const StoredRows stored_;
  const ResultPlaces& places_;
  KeptWeights kept_;
  bool last_tile_ = false;
  // Of each row: whether its results are this pass's, and need a second sweep.
  uint8_t* finished_;
  uint8_t* swept_;
  // Of each row that a second sweep computes: where its weights go, from the
  // first key and from the tile's; null where they are not wanted.
  float** to_;
  float** to_in_tile_;
  float* inverse_sum_;
  TopK* top_k_;  // where they are wanted
  double* const key_sums_;
  int64_t first_key_ = 0;  // of the tile
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_WEIGHT_RESULTS_H_
