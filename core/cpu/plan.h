#ifndef ATTENTION_CORE_CPU_PLAN_H_
#define ATTENTION_CORE_CPU_PLAN_H_

#include <cstdint>

#include "core/cpu/kernels/kernels.h"
#include "core/validate.h"

namespace attention::cpu {

/// How a problem is cut. It follows from the problem's extents and the
/// instruction set alone, never from the number of threads or what else runs,
/// so that the bits do not either.
///
/// Query heads that read the same keys form a kv group: their rows, head after
/// head, are one sequence of rows, cut into blocks. A block is one piece of
/// work: its rows against all keys, tile by tile.
struct Plan {
  int64_t heads_per_group = 1;
  int64_t kv_groups = 0;       // of all batch entries
  int64_t rows_per_group = 0;  // heads_per_group * Lq
  int64_t row_block = 0;       // rows of a block, at most
  int64_t blocks_per_group = 0;
  /// Blocks that are computed one after the other, as one piece of work: more
  /// than one where weights are summed over rows (core/cpu/key_sums.h). A group
  /// is then one head, and has at most 16 of them.
  int64_t blocks_per_chunk = 1;
  int64_t chunks_per_group = 0;
  int64_t key_tile = 0;  // keys of a tile, at most

  /// QK and PV multiply BF16, each element as the sum of so many terms: 1 of
  /// BF16, 2 of FP16. 0 where they multiply FP32.
  int64_t bf16_terms = 0;
  /// Decoding multiplies INT8 by digits (kernels/bf16/int8_products.h).
  bool int8_digits = false;

  /// What a score sums over (core/cpu/scoring/scoring.h), and how much of it is
  /// packed at a time: wide queries and keys are scored part by part.
  int64_t score_width = 0;
  int64_t score_part = 0;  // a multiple of whole vectors, unless it is all
  /// Dv, rounded up to whole vectors, those of products of BF16 included:
  /// floats of what is kept per row.
  int64_t padded_value_width = 0;

  /// Few rows against many keys: keys are not packed, and those that a block's
  /// rows attend are split into ranges, merged in order.
  bool decode = false;
  int64_t splits = 1;         // of a block, at most
  int64_t keys_of_split = 1;  // of one of several, at least
  /// kv groups of one batch entry whose blocks may take turns at each tile:
  /// more than one where heads' keys are interleaved, for memory is read
  /// fastest in its order. No bit follows from it, nor from how many do
  /// (JobRun).
  int64_t groups_in_turn = 1;

  /// Where weights are wanted: true if a block keeps those of all tiles but the
  /// last until its softmax is known, false if it computes the scores a second
  /// time.
  bool keeps_weights = false;
  int64_t kept_stride = 0;  // floats per row, those of kept_tiles included
  int64_t kept_tiles = 0;   // tiles of keys, at most

  int64_t blocks() const { return kv_groups * blocks_per_group; }
  int64_t chunks() const { return kv_groups * chunks_per_group; }
  int64_t ChunkOf(int64_t block) const {
    return block / blocks_per_group * chunks_per_group +
           block % blocks_per_group / blocks_per_chunk;
  }
  /// The first block of a chunk; of chunks() the end of all.
  int64_t FirstBlock(int64_t chunk) const {
    return chunk / chunks_per_group * blocks_per_group +
           chunk % chunks_per_group * blocks_per_chunk;
  }
  /// Into how many ranges the keys `attended` by some row of a block are split,
  /// 1 or more, and which is the one of number `split`. Both follow from that
  /// range alone, so that a batch entry gets the bits that it gets by itself.
  int64_t SplitsOf(const KeyRange& attended) const;
  KeyRange SplitKeys(const KeyRange& attended, int64_t split) const;
  /// Floats of one row's unfinished softmax: maximum, sum, weighted values.
  int64_t partial_floats() const { return 2 + padded_value_width; }
};

Plan MakePlan(const ValidatedProblem& problem, const Kernels& kernels);

/// a / b, rounded up; a >= 0, b > 0.
constexpr int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }
/// The first multiple of b that is not below a.
constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDivide(a, b) * b; }

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_PLAN_H_
