#ifndef ATTENTION_CORE_CUDA_KERNELS_SCORE_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_SCORE_INL_H_

// A tile of scores in FP32: 64 rows and 64 keys, of which each of 256 threads
// has 4 by 4, or 128 of each, 8 by 8. `attend` and `weights` both run it: for
// the same row and key it gives the same bits in both.

#include "core/cuda/kernels/stages-inl.h"

namespace attention::cuda {

/// Of a thread: of rows TileRow() and keys TileKey().
template <int kSide>
using Scores = float[kSide * kQuad][kSide * kQuad];

/// What a score is the sum of: `sum` and the term of one column. w is the
/// column's weight where there are such. Columns beyond the rows' width are 0
/// in all three, and add nothing.
template <Score kScore>
struct ScoreTerm;

template <>
struct ScoreTerm<Score::kDot> {
  static constexpr bool kHasWeights = false;
  ATTENTION_KERNEL_CODE static float Add(float q, float k, float, float sum) {
    return Fma(q, k, sum);
  }
};

/// Differences lose nothing, however far from the origin points lie.
template <>
struct ScoreTerm<Score::kGaussian> {
  static constexpr bool kHasWeights = false;
  ATTENTION_KERNEL_CODE static float Add(float q, float k, float, float sum) {
    const float difference = q - k;
    return Fma(difference, difference, sum);
  }
};

/// tanh(x) = 1 - 2 / (1 + e^2x), which is right where e^2x overflows, too.
template <>
struct ScoreTerm<Score::kAdditive> {
  static constexpr bool kHasWeights = true;
  ATTENTION_KERNEL_CODE static float Add(float q, float k, float w, float sum) {
    constexpr float kTwoLog2E = 2.8853900817779268F;
    const float power = FastExp2((q + k) * kTwoLog2E);
    const float tanh = Fma(-2.0F, Reciprocal(1 + power), 1.0F);
    return Fma(w, tanh, sum);
  }
};

/// Adds the terms of a depth that lies in shared memory.
template <Score kScore, int kSide>
ATTENTION_KERNEL_CODE void AddDepth(const float* stage, Scores<kSide>& scores) {
  constexpr int kTile = kSide * kAttendRows * kAttendDepth;
  const float* const keys = stage + kTile;
  const int row = SpreadRow(TileRow(0));
  const int key = SpreadRow(TileKey(0));
  ATTENTION_UNROLL(kSide)  // as far as there are registers
  for (int quad = 0; quad < kAttendDepth / kQuad; ++quad) {
    const float* const q_at = stage + QuadAt(row, quad);
    const float* const k_at = keys + QuadAt(key, quad);
    Float4 k[kSide * kQuad];
    Float4 w = {};
    ATTENTION_UNROLL_ALL
    for (int n = 0; n < kSide * kQuad; ++n) {
      k[n] = LoadFloat4(k_at + SpreadRow(TileIndex(n)) * kAttendDepth);
    }
    if (ScoreTerm<kScore>::kHasWeights) {
      w = LoadFloat4(keys + kTile + static_cast<int64_t>(quad * kQuad));
    }
    ATTENTION_UNROLL_ALL
    for (int m = 0; m < kSide * kQuad; ++m) {
      const Float4 q =
          LoadFloat4(q_at + SpreadRow(TileIndex(m)) * kAttendDepth);
      for (int i = 0; i < kQuad; ++i) {
        for (int n = 0; n < kSide * kQuad; ++n) {
          scores[m][n] = ScoreTerm<kScore>::Add(q.at[i], k[n].at[i], w.at[i],
                                                scores[m][n]);
        }
      }
    }
  }
}

/// Scores without factor of the thread's rows and keys of the tile that is
/// brought next; whatever for those that do not exist. The block.
template <Score kScore, typename AnyStages, int kCount>
ATTENTION_KERNEL_CODE void ComputeScores(const AttentionArgs& args,
                                         AnyStages& stages,
                                         float (&scores)[kCount][kCount]) {
  for (auto& row : scores) {
    for (float& score : row) score = 0;
  }
  for (int64_t column = 0; column < args.key.width; column += kAttendDepth) {
    AddDepth<kScore, kCount / kQuad>(stages.Next(), scores);
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_SCORE_INL_H_
