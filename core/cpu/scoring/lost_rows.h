#ifndef ATTENTION_CORE_CPU_SCORING_LOST_ROWS_H_
#define ATTENTION_CORE_CPU_SCORING_LOST_ROWS_H_

#include <cmath>
#include <cstdint>

#include "core/cpu/kernels/tile_args.h"
#include "core/cpu/scratch.h"

namespace attention::cpu {

/// Gaussian rows that a dot product loses, from the first sign of one to the
/// pass that computes it again.
///
/// GaussianProduct computes -|q - k|^2 / (2 sigma^2) as
///
///   (q'.k' - |k'|^2 / 2 - |q'|^2 / 2) / sigma^2
///
/// with q' and k' the query and the key less a centre amid the keys. Its
/// roundings are relative to |q'|^2 and |k'|^2, while the tolerance is relative
/// to |q - k|^2. That is no loss as long as some key that takes part is as far
/// from the row as the centre is, for then the tolerance has room for |q'|^2:
/// the row has a far key. With the row's own term left out, such a key's score
/// is below 1 (far_rows.score), whatever the row. A row has lost its scores if
///
/// - it has no far key and does not lie near the centre itself
///   (|q'|^2 / (2 sigma^2) > 1): it is a difference of larger numbers than its
///   scores are;
/// - its sum is NaN: perhaps from infinity less infinity, where a key is merely
///   infinitely far.
///
/// The way of such a row:
///
/// 1. SetRow() notes the rows that need a far key. The kernels' epilogue
///    (NoteFarKeys) ticks off those that meet one: it compares scores before
///    the epilogue, of keys that still take part after it.
/// 2. After the last tile RowPass asks Lost() for every row, and gives back
///    those that are, as rows that remain for Pass::kDifferences.
/// 3. ComputeRowBlocks (rows/row_block.cc) sends them through a second pass
/// with
///    GaussianDifferences, of which nothing cancels, and stores them in the
///    place of the first one's results. A row in which that finds no key that
///    takes part, for all are infinitely far, goes on to Pass::kUniform if the
///    problem asks for it.
///
/// The reply then names the kernel fp32_tiles_and_differences.
class LostRows {
 public:
  LostRows(int64_t rows, Scratch& scratch)
      : met_far_key_(scratch.Take<uint8_t>(rows)) {}

  /// `own_score`: what the row itself adds to its scores, -|q'|^2 /
  /// (2 sigma^2).
  void SetRow(int64_t row, double own_score) {
    met_far_key_[row] = own_score < -1 ? 0 : 1;
  }

  /// `one`: a natural score of 1, as QK counts it (ScoreUnit).
  FarRows Watched(double one) const {
    return {.met_far_key = met_far_key_, .score = static_cast<float>(one)};
  }

  bool Lost(int64_t row, double sum) const {
    return met_far_key_[row] == 0 || std::isnan(sum);
  }

 private:
  uint8_t* met_far_key_;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_LOST_ROWS_H_
