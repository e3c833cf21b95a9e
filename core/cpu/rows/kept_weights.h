#ifndef ATTENTION_CORE_CPU_ROWS_KEPT_WEIGHTS_H_
#define ATTENTION_CORE_CPU_ROWS_KEPT_WEIGHTS_H_

#include <cstdint>

#include "core/cpu/kernels/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/rows/key_tile.h"
#include "core/cpu/scratch.h"
#include "core/validate.h"

namespace attention::cpu {

/// The weights that a block's rows give to all their keys, kept tile by tile
/// until the rows' softmax is known, for a plan that has room for them: they
/// need not be computed a second time then.
class KeptWeights {
 public:
  /// Takes its memory from `scratch`; none for other plans. `rows` of a block.
  KeptWeights(const ValidatedProblem& problem, const Plan& plan,
              const Kernels& kernels, int64_t rows, Scratch& scratch);

  /// Has the kernel that computes `tile` keep its weights.
  void Keep(const KeyTile& tile, TileArgs& args);

  /// Stores a row's weights, those of all keys, at `to`. `max` and `sum` are
  /// its final state. FlushStores() comes after the last row.
  void Store(int64_t row, float max, double sum, float* to) const;
  static void FlushStores();

 private:
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
