#ifndef ATTENTION_CORE_CUDA_KERNELS_WEIGHTS_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_WEIGHTS_INL_H_

// Weights, once every row's maximum and sum are known: the scores a second
// time.

#include "core/cuda/kernels/attend-inl.h"

namespace attention::cuda {

/// The weight of a score, times log2 e, in a row.
ATTENTION_KERNEL_CODE float WeightOf(float score, const RowState& row) {
  if (score == -Infinity() || row.sum == 0) return 0;
  return Exp2(score - Base(row.max)) / row.sum;
}

/// The thread's weights of one row: scores become weights and are stored.
ATTENTION_KERNEL_CODE void StoreRowWeights(const AttentionArgs& args,
                                           int64_t batch, const RowInfo& info,
                                           int64_t result_row,
                                           int64_t first_key,
                                           float (&scores)[kTileKeys]) {
  const RowState row = {args.row_max[result_row], args.row_sum[result_row], 0};
  for (float& score : scores) score = WeightOf(score, row);
  if (args.weights_after_dropout != 0 && args.dropout.active != 0) {
    DropWeights(args, batch, info, first_key, scores);
    for (float& weight : scores)
      weight *= static_cast<float>(args.dropout.kept);
  }
  float* const to = args.weights + result_row * args.key_length + first_key;
  for (int n = 0; n < kTileKeys; ++n) {
    const int64_t key = ThreadKey() + n;
    if (first_key + key < args.key_length) to[key] = scores[n];
  }
}

template <Score kScore>
ATTENTION_KERNEL_CODE void StoreWeights(const AttentionArgs& args,
                                        int64_t block) {
  const AttendMemory memory = MakeAttendMemory();
  const int64_t key_tiles = CeilDivide(args.key_length, kAttendKeys);
  const int64_t row_tiles = CeilDivide(RowsPerLane(args), kAttendRows);
  const int64_t first_key = block % key_tiles * kAttendKeys;
  const int64_t row_tile = block / key_tiles;
  const Lane lane = LaneOf(args, row_tile / row_tiles);
  const RowTile rows =
      MakeRowTile<kAttendRows>(args, lane, row_tile % row_tiles * kAttendRows,
                               {0, args.key_length}, memory.rows);
  const Epilogue epilogue = MakeLaneEpilogue<kScore>(args, lane);
  Scores scores = {};
  const bool any =
      first_key < rows.any.end && first_key + kAttendKeys > rows.any.begin;
  if (any) {
    ComputeScores<kScore>(args,
                          MakeScoreTile<kScore>(args, lane, rows, first_key),
                          memory, scores);
  }
  ATTENTION_UNROLL_ALL
  for (int m = 0; m < kTileRows; ++m) {
    if (ThreadRow() + m >= rows.count) continue;
    float magnitude = 0;
    const RowInfo& row = memory.rows[ThreadRow() + m];
    FinishRowScores(args, epilogue, lane.batch, row, first_key, scores[m],
                    magnitude);
    StoreRowWeights(args, lane.batch, row,
                    lane.first_result_row + rows.first + ThreadRow() + m,
                    first_key, scores[m]);
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_WEIGHTS_INL_H_
