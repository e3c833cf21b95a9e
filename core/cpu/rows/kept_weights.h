#ifndef ATTENTION_CORE_CPU_ROWS_KEPT_WEIGHTS_H_
#define ATTENTION_CORE_CPU_ROWS_KEPT_WEIGHTS_H_

#include <cstdint>

#include "core/cpu/kernels/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/rows/key_tile.h"
#include "core/cpu/scratch.h"
#include "core/validate.h"

namespace attention::cpu {

/// The weights that a block's rows give to the keys of all tiles but the last,
/// kept until the last has shown the rows' softmax, for a plan that has room
/// for them: they need not be computed a second time then. Those of the last
/// tile go to the caller at once.
class KeptWeights {
 public:
  /// Takes its memory from `scratch`; none for other plans. `rows` of a block.
  KeptWeights(const ValidatedProblem& problem, const Plan& plan,
              const Kernels& kernels, int64_t rows, Scratch& scratch);

  /// Tiles come in order, without a gap.
  void BeginTile(const KeyTile& tile);

  /// Keeps weights of the tile; `max` is that of all rows.
  void Keep(const TileWeights& weights, const float* max);

  /// Stores at `to` what a row gives to all keys, those outside the tiles
  /// included. `weights` are those of the last tile, `max` and `sum` the row's
  /// final state, of powers of 2 of `exponent` times scores. FlushStores()
  /// comes after the last row.
  void Store(int64_t row, const TileWeights& weights, float max, double sum,
             float exponent, float* to) const;
  static void FlushStores();

 private:
  float* RowOf(int64_t row, const KeyRange& tile) const {
    return weights_ + row * plan_.kept_stride + tile.begin - tiles_[0].begin;
  }

  const ValidatedProblem& problem_;
  const Plan& plan_;
  const Kernels& kernels_;
  const int64_t rows_;
  float* weights_ = nullptr;  // [row][key], relative to the maximum at its time
  float* max_ = nullptr;      // [tile][row]
  KeyRange* tiles_ = nullptr;  // the keys of each tile
  int64_t count_ = 0;          // of tiles
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_KEPT_WEIGHTS_H_
