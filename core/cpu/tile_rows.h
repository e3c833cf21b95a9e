#ifndef ATTENTION_CORE_CPU_TILE_ROWS_H_
#define ATTENTION_CORE_CPU_TILE_ROWS_H_

#include <algorithm>
#include <cstdint>

#include "core/cpu/row_source.h"
#include "core/validate.h"

namespace attention::cpu {

/// The block that holds key `key`, 0 <= key < Lk.
const ValidatedProblem::Block& BlockOf(const ValidatedProblem& problem,
                                       int64_t key);

/// The keys, or the values, of some consecutive keys of one key/value head. Of
/// several blocks (pages) they lie in several pieces.
class TileRows {
 public:
  /// `of` is kKeys or kValues; `keys` lies within [0, Lk]. The problem outlives
  /// it.
  TileRows(const ValidatedProblem& problem, const BlockTensors& of,
           int64_t batch, int64_t kv_head, const KeyRange& keys)
      : problem_(problem),
        of_(of),
        batch_(batch),
        kv_head_(kv_head),
        keys_(keys) {}

  int64_t count() const { return keys_.end - keys_.begin; }

  /// Rows that lie in one piece.
  struct Piece {
    RowSource rows;
    int64_t count;
  };
  /// Row `first` and those behind it in its piece; first < count().
  Piece From(int64_t first) const {
    return PieceOf(BlockOf(problem_, keys_.begin + first), first,
                   count() - first);
  }

  /// Calls visit(rows, at, n) for the pieces of rows first ... first + count -
  /// 1; row first + at is the first of n.
  template <typename Visit>
  void ForEachPiece(int64_t first, int64_t count, const Visit& visit) const {
    if (count == 0) return;
    const ValidatedProblem::Block* block =
        &BlockOf(problem_, keys_.begin + first);
    for (int64_t at = 0; at < count; ++block) {
      const Piece piece = PieceOf(*block, first + at, count - at);
      visit(piece.rows, at, piece.count);
      at += piece.count;
    }
  }
  template <typename Visit>
  void ForEachPiece(const Visit& visit) const {
    ForEachPiece(0, count(), visit);
  }

 private:
  Piece PieceOf(const ValidatedProblem::Block& block, int64_t first,
                int64_t most) const {
    const int64_t in_block = keys_.begin + first - block.first_key;
    return {RowsOf(block, of_, batch_, kv_head_, in_block),
            std::min(most, block.key_count - in_block)};
  }

  const ValidatedProblem& problem_;
  BlockTensors of_;
  int64_t batch_;
  int64_t kv_head_;
  KeyRange keys_;
};

/// Where each of `count` rows begins.
inline void PointTo(const RowSource& rows, int64_t count,
                    const unsigned char** to) {
  for (int64_t i = 0; i < count; ++i) to[i] = rows.data + i * rows.row_stride;
}

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_TILE_ROWS_H_
