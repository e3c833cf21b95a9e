#ifndef ATTENTION_CORE_CPU_PLAN_H_
#define ATTENTION_CORE_CPU_PLAN_H_

#include <cstdint>

#include "core/cpu/kernels.h"
#include "core/validate.h"

namespace attention::cpu {

/// How the scores of a problem are computed.
enum class Method : uint8_t {
  kDot,             // scaled dot product, bilinear
  kGaussianDot,     // by a dot product and norms, around a centre
  kGaussianDirect,  // by differences
  kAdditive,
};

/// How a problem is cut. It follows from the problem's extents and the
/// instruction set alone, never from the number of threads or what else runs,
/// so that the bits do not either.
///
/// Query heads that read the same keys form a lane: their rows, head after
/// head, are one sequence of rows, cut into blocks. A block is one piece of
/// work: its rows against all keys, tile by tile.
struct Plan {
  /// False: some extent does not fit into the kernels' memory, or some option
  /// not into FP32. The reference's loops then do the work.
  bool fits = true;
  Method method = Method::kDot;

  int64_t heads_per_lane = 1;
  int64_t lanes = 0;          // of all batch entries
  int64_t rows_per_lane = 0;  // heads_per_lane * Lq
  int64_t row_block = 0;      // rows of a block, at most
  int64_t blocks_per_lane = 0;
  int64_t key_tile = 0;  // keys of a tile, at most

  /// The products are those of BF16, where the numbers allow it.
  bool bf16 = false;

  // Widths in floats, rounded up to whole vectors, of what is kept per row.
  int64_t score_width = 0;  // not rounded: what the first product sums over
  int64_t padded_value_width = 0;
  int64_t padded_hidden_width = 0;

  /// Few rows against many keys: keys are not packed, and where there are few
  /// lanes, the keys are split into pieces of keys_per_split, merged in order.
  bool decode = false;
  int64_t splits = 1;
  int64_t keys_per_split = 0;

  /// Where weights are wanted: true if a block keeps those of all its keys
  /// until its softmax is known, false if it computes the scores a second time.
  bool keeps_weights = false;
  int64_t kept_stride = 0;  // floats per row
  int64_t kept_tiles = 0;   // tiles of keys, at most

  int64_t blocks() const { return lanes * blocks_per_lane; }
  /// Floats of one row's unfinished softmax: maximum, sum, weighted values.
  int64_t partial_floats() const { return 2 + padded_value_width; }
};

/// True where FP32 can hold what the options make of the scores: a softcap of
/// 1e38 counts them in shares that vanish, a sigma of 1e-25 multiplies them by
/// infinity.
bool FactorsFit(const ValidatedProblem& problem);

Plan MakePlan(const ValidatedProblem& problem, const Kernels& kernels);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_PLAN_H_
