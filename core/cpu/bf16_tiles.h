#ifndef ATTENTION_CORE_CPU_BF16_TILES_H_
#define ATTENTION_CORE_CPU_BF16_TILES_H_

#include <cstdint>

#include "core/cpu/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/scratch.h"
#include "core/validate.h"

namespace attention::cpu {

/// Brings queries, keys and values of one block of rows into the form that
/// products of BF16 read, for a plan that has them.
class Bf16Tiles {
 public:
  /// Takes its memory from `scratch`; none for other plans.
  Bf16Tiles(const ValidatedProblem& problem, const Plan& plan,
            const Kernels& kernels, Scratch& scratch);

  /// Rows of queries and of output that a block of `rows` rows has room for.
  static int64_t PaddedRows(int64_t rows);

  /// Copies `count` queries into row `first_row` ... of the block, in order.
  /// False where such products do not serve a number among them.
  bool AddQueries(const RowSource& queries, int64_t first_row, int64_t count);

  /// Packs a tile of keys and their values. False likewise.
  bool Pack(const RowSource& keys, const RowSource& values, int64_t count);

  /// Fills in the operands, given the tile that was packed last.
  void Fill(TileArgs& args) const;

 private:
  const ValidatedProblem& problem_;
  const Kernels& kernels_;
  int64_t width_ = 0;         // pairs of a query or key
  int64_t value_panels_ = 0;  // of kBf16Panel columns
  float* queries_ = nullptr;
  float* rows_ = nullptr;  // keys, then values, before they are packed
  float* keys_ = nullptr;
  float* values_ = nullptr;
  float* weights_ = nullptr;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_BF16_TILES_H_
