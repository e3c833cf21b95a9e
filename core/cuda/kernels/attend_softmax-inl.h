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
template <Score kScore>
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
  source.query_count = Least(kAttendRows, RowsPerGroup(args) - place.first_row);
  source.strip = place.strip;
  source.split = place.split;
  source.unused = 0;
  *memory.source = source;
}

/// The thread's scores of one row, masked.
ATTENTION_KERNEL_CODE void FinishRowScores(const AttentionArgs& args,
                                           const Epilogue& epilogue,
                                           const RowInfo& row,
                                           int64_t first_key,
                                           float (&scores)[kTileKeys]) {
  const RowMasks masks =
      MasksOf(args, row.batch, row.head, row.query, first_key);
  for (int n = 0; n < kTileKeys; ++n) {
    const int64_t key = first_key + ThreadKey() + n;
    scores[n] = key >= row.begin && key < row.end
                    ? FinishScore(args, epilogue, masks, key, scores[n])
                    : -Infinity();
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
struct ThreadState {
  RowState rows[kTileRows];
};

/// The scores of a tile, masked.
template <Score kScore, bool kPaged>
ATTENTION_KERNEL_CODE void FinishScores(const AttentionArgs& args,
                                        const Epilogue& epilogue,
                                        int64_t first_key,
                                        const AttendMemory& memory,
                                        Scores& scores) {
  ComputeScores<kScore, kPaged>(args, first_key, memory, scores);
  const RowInfo* const rows = memory.rows + Opaque(ThreadRow());
  ATTENTION_UNROLL_ALL
  for (int m = 0; m < kTileRows; ++m) {
    FinishRowScores(args, epilogue, rows[m], first_key, scores[m]);
  }
}

/// Makes weights of scores, relative to each row's maximum so far, and returns
/// in `factors` what was gathered before has to be multiplied by.
template <typename Accumulation>
ATTENTION_KERNEL_CODE void AddToSoftmax(Scores& scores, ThreadState& state,
                                        float (&factors)[kTileRows]) {
  ATTENTION_UNROLL_ALL
  for (int m = 0; m < kTileRows; ++m) {
    RowState& row = state.rows[m];
    float largest = -Infinity();
    for (int n = 0; n < kTileKeys; ++n) largest = Larger(largest, scores[m][n]);
    const float max = Larger(row.max, LargestOfRow(largest));
    const float base = Base(max);
    factors[m] = Exp(row.max - base);
    row.max = max;
    row.sum *= factors[m];
    for (int n = 0; n < kTileKeys; ++n) {
      scores[m][n] = Accumulation::WeightOf(scores[m][n], base);
      row.sum += scores[m][n];
    }
  }
}

/// The weights of dropped keys become `zero`; NaN stays.
ATTENTION_KERNEL_CODE void DropWeights(const AttentionArgs& args,
                                       const RowInfo& row, int64_t first_key,
                                       float zero,
                                       float (&weights)[kTileKeys]) {
  const PhiloxWords words = DropoutWords(args.dropout, row.batch, row.head,
                                         row.query, first_key + ThreadKey());
  for (int n = 0; n < kTileKeys; ++n) {
    const bool drops = words.word[n] < args.dropout.threshold;
    if (drops && !IsNan(weights[n])) weights[n] = zero;
  }
}

/// Shows the block the thread's weights.
ATTENTION_KERNEL_CODE void ShowWeights(const AttendMemory& memory,
                                       const Scores& weights) {
  for (int n = 0; n < kTileKeys; ++n) {
    Float4 column;
    for (int m = 0; m < kTileRows; ++m) column.at[m] = weights[m][n];
    StoreFloat4(memory.weights + (ThreadKey() + n) * kAttendPitch + ThreadRow(),
                column);
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_ATTEND_SOFTMAX_INL_H_
