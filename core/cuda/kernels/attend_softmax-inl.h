#ifndef ATTENTION_CORE_CUDA_KERNELS_ATTEND_SOFTMAX_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_ATTEND_SOFTMAX_INL_H_

// What attend, recompute and weights do with a tile of scores: masks, the
// online softmax, dropout.

#include "core/cuda/kernels/mask-inl.h"
#include "core/cuda/kernels/philox-inl.h"
#include "core/cuda/kernels/rows-inl.h"
#include "core/cuda/kernels/score-inl.h"

namespace attention::cuda {

/// A block's part of the work.
struct AttendPlace {
  KvGroup kv_group;
  int64_t first_row;  // of the kv group
  int64_t strip;      // of the values' columns
  int64_t split;      // of the keys
  KeySpan keys;
};

ATTENTION_KERNEL_CODE AttendPlace MakeAttendPlace(const AttentionArgs& args,
                                                  int64_t index,
                                                  int64_t tile_rows,
                                                  int64_t strips) {
  AttendPlace place;
  place.split = index % args.splits;
  index /= args.splits;
  place.strip = index % strips;
  index /= strips;
  const int64_t tiles = CeilDivide(RowsPerGroup(args), tile_rows);
  // The last rows first: under a causal mask they have the most keys, and what
  // is begun last should be short.
  place.first_row = (tiles - 1 - index % tiles) * tile_rows;
  place.kv_group = KvGroupOf(args, index / tiles);
  place.keys = {0, args.key_length};
  if (args.splits > 1) {
    place.keys.begin =
        Least(args.key_length, place.split * args.keys_per_split);
    place.keys.end =
        Least(args.key_length, place.keys.begin + args.keys_per_split);
  }
  return place;
}

ATTENTION_KERNEL_CODE const float* TermWeights(const AttentionArgs& args,
                                               const KvGroup& kv_group) {
  return args.term_weights + kv_group.first_head * args.term_weight_stride;
}

/// Notes what the block reads; it is there after the next SyncBlock().
template <Score kScore, int kSide>
ATTENTION_KERNEL_CODE void SetAttendSource(const AttentionArgs& args,
                                           const AttendPlace& place,
                                           const AttendMemory& memory) {
  if (ThreadIndex() != 0) return;
  const KvGroup& kv_group = place.kv_group;
  AttendSource source;
  source.query_begin =
      (kv_group.first_result_row + place.first_row) * int64_t{args.query.width};
  source.key_begin =
      RowsBegin(args, args.key, kv_group.batch, kv_group.first_head);
  source.value_begin =
      RowsBegin(args, args.value, kv_group.batch, kv_group.first_head);
  source.term_weights =
      ScoreTerm<kScore>::kHasWeights ? TermWeights(args, kv_group) : nullptr;
  source.query_count =
      Least(kSide * kAttendRows, RowsPerGroup(args) - place.first_row);
  source.strip = place.strip;
  source.split = place.split;
  source.unused = 0;
  *memory.source = source;
}

/// Whether something other than its range decides about a row's scores.
ATTENTION_KERNEL_CODE bool HasOptions(const AttentionArgs& args) {
  return args.attend_mask.data != nullptr || args.bias.data != nullptr ||
         args.softcap != 0 || args.alibi_slopes != nullptr;
}

/// The thread's scores of one row, masked. kOptions: false where there are
/// none.
template <bool kOptions, int kKeys>
ATTENTION_KERNEL_CODE void FinishRowScores(const AttentionArgs& args,
                                           const Epilogue& epilogue,
                                           const RowInfo& row,
                                           int64_t first_key,
                                           float (&scores)[kKeys]) {
  constexpr int64_t kTile = kKeys / kQuad * kAttendKeys;
  const auto begin =
      static_cast<int>(Least(Most(row.begin - first_key, 0), kTile));
  const auto end = static_cast<int>(Least(Most(row.end - first_key, 0), kTile));
  RowMasks masks;
  if (kOptions) {
    masks = MasksOf(args, row.batch, row.head, row.query, first_key);
  }
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < kKeys; ++n) {
    const int key = TileKey(n);
    if (key < begin || key >= end) {
      scores[n] = -Infinity();
    } else if (kOptions) {
      scores[n] =
          FinishScore(args, epilogue, masks, first_key + key, scores[n]);
    } else {
      scores[n] *= epilogue.factor;
    }
  }
}

/// The largest of the 16 threads of a row.
ATTENTION_KERNEL_CODE float LargestOfRow(float value) {
  for (int mask = 8; mask > 0; mask /= 2) {
    value = Larger(value, ShuffleXor(value, mask));
  }
  return value;
}
ATTENTION_KERNEL_CODE float SumOfRow(float value) {
  for (int mask = 8; mask > 0; mask /= 2) value += ShuffleXor(value, mask);
  return value;
}

/// What a thread keeps of its rows: maxima are the rows', sums those of its own
/// keys.
template <int kSide>
struct ThreadState {
  RowState rows[kSide * kQuad];
};

/// Masks the scores of a tile.
template <int kSide>
ATTENTION_KERNEL_CODE void FinishScores(const AttentionArgs& args,
                                        const Epilogue& epilogue,
                                        int64_t first_key,
                                        const AttendMemory& memory,
                                        Scores<kSide>& scores) {
  const RowInfo* const rows = memory.rows + Opaque(TileRow(0));
  const auto finish = [&]<bool kOptions>() {
    ATTENTION_UNROLL_ALL
    for (int m = 0; m < kSide * kQuad; ++m) {
      FinishRowScores<kOptions>(args, epilogue, rows[TileIndex(m)], first_key,
                                scores[m]);
    }
  };
  if (HasOptions(args)) {
    finish.template operator()<true>();
  } else {
    finish.template operator()<false>();
  }
}

/// Makes weights of scores, relative to each row's maximum so far, and returns
/// in `factors` what was gathered before has to be multiplied by.
template <typename Accumulation, int kSide>
ATTENTION_KERNEL_CODE void AddToSoftmax(Scores<kSide>& scores,
                                        ThreadState<kSide>& state,
                                        float (&factors)[kSide * kQuad]) {
  ATTENTION_UNROLL_ALL
  for (int m = 0; m < kSide * kQuad; ++m) {
    RowState& row = state.rows[m];
    float largest = -Infinity();
    for (const float score : scores[m]) largest = Larger(largest, score);
    const float max = Larger(row.max, LargestOfRow(largest));
    const float base = Base(max);
    factors[m] = Exp(row.max - base);
    row.max = max;
    row.sum *= factors[m];
    for (float& score : scores[m]) {
      score = Accumulation::WeightOf(score, base);
      row.sum += score;
    }
  }
}

/// The weights of dropped keys become `zero`; NaN stays.
template <int kKeys>
ATTENTION_KERNEL_CODE void DropWeights(const AttentionArgs& args,
                                       const RowInfo& row, int64_t first_key,
                                       float zero, float (&weights)[kKeys]) {
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < kKeys; n += kQuad) {
    const PhiloxWords words = DropoutWords(args.dropout, row.batch, row.head,
                                           row.query, first_key + TileKey(n));
    for (int i = 0; i < kQuad; ++i) {
      const bool drops = words.word[i] < args.dropout.threshold;
      if (drops && !IsNan(weights[n + i])) weights[n + i] = zero;
    }
  }
}

/// Shows the block the thread's weights of kAttendKeys keys, of `part` among
/// the tile's.
template <int kSide>
ATTENTION_KERNEL_CODE void ShowWeights(const AttendMemory& memory, int part,
                                       const Scores<kSide>& weights) {
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < kQuad; ++n) {
    float* const to =
        memory.weights + SpreadRow(TileKey(n)) * AttendPitch(kSide);
    for (int m = 0; m < kSide * kQuad; m += kQuad) {
      Float4 rows;
      for (int i = 0; i < kQuad; ++i) {
        rows.at[i] = weights[m + i][part * kQuad + n];
      }
      StoreFloat4(to + TileRow(m), rows);
    }
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_ATTEND_SOFTMAX_INL_H_
