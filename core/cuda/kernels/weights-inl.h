#ifndef ATTENTION_CORE_CUDA_KERNELS_WEIGHTS_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_WEIGHTS_INL_H_

// Weights, once every row's maximum and sum are known: the scores a second
// time.

#include "core/cuda/kernels/attend_softmax-inl.h"

namespace attention::cuda {

/// The weight of a score in a row.
ATTENTION_KERNEL_CODE float WeightOf(const AttentionArgs& args, float score,
                                     const RowState& row) {
  if (row.sum == 0) return EmptyRowWeight(args);
  if (score == -Infinity()) return 0;  // in a row that is NaN, too
  return Exp(score - Base(row.max)) / row.sum;
}

/// The thread's weights of one row: scores become weights and are stored.
ATTENTION_KERNEL_CODE void StoreRowWeights(const AttentionArgs& args,
                                           const RowInfo& info,
                                           int64_t result_row,
                                           int64_t first_key,
                                           float (&scores)[kQuad]) {
  const RowState row = {args.row_max[result_row], args.row_sum[result_row]};
  for (float& score : scores) score = WeightOf(args, score, row);
  if (args.weights_after_dropout != 0 && args.dropout.active != 0) {
    DropWeights(args, info, first_key, 0.0F, scores);
    for (float& weight : scores) weight *= args.dropout.kept;
  }
  float* const to = args.weights + result_row * args.key_length + first_key;
  for (int n = 0; n < kQuad; ++n) {
    const int64_t key = TileKey(n);
    if (first_key + key < args.key_length) to[key] = scores[n];
  }
}

template <Score kScore>
ATTENTION_KERNEL_CODE void StoreWeights(const AttentionArgs& args,
                                        int64_t block) {
  const AttendMemory memory = MakeAttendMemory<1>();
  const int64_t key_tiles = CeilDivide(args.key_length, kAttendKeys);
  const int64_t row_tiles = CeilDivide(RowsPerGroup(args), kAttendRows);
  const int64_t first_key = block % key_tiles * kAttendKeys;
  const int64_t row_tile = block / key_tiles;
  AttendPlace place;
  place.kv_group = KvGroupOf(args, row_tile / row_tiles);
  place.first_row = row_tile % row_tiles * kAttendRows;
  place.strip = place.split = 0;
  place.keys = {0, args.key_length};
  SetAttendSource<kScore, 1>(args, place, memory);
  const RowTile rows = MakeRowTile<kAttendRows>(
      args, place.kv_group, place.first_row, place.keys, memory.rows);
  const Epilogue epilogue = MakeEpilogue(args);
  Scores<1> scores = {};
  const bool any =
      first_key < rows.any.end && first_key + kAttendKeys > rows.any.begin;
  if (any) {
    auto stages = BeginStages<kScore, 0, 1, false>(args, memory, first_key,
                                                   first_key + 1);
    ComputeScores<kScore>(args, stages, scores);
  }
  ATTENTION_UNROLL_ALL
  for (int m = 0; m < kQuad; ++m) {
    const RowInfo& row = memory.rows[TileRow(m)];
    if (row.query < 0) continue;
    FinishRowScores<true>(args, epilogue, row, first_key, scores[m]);
    StoreRowWeights(args, row, ResultRow(args, row), first_key, scores[m]);
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_WEIGHTS_INL_H_
