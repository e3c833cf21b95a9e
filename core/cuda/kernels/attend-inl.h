#ifndef ATTENTION_CORE_CUDA_KERNELS_ATTEND_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_ATTEND_INL_H_

// The fused kernel in FP32: tiles of scores, the online softmax and weighted
// values without the matrix of scores ever in memory (Dao, "FlashAttention-2",
// 2023).

#include "core/cuda/kernels/attend_values-inl.h"

namespace attention::cuda {

/// Whether all of it is finite.
template <int kColumnGroups>
ATTENTION_KERNEL_CODE bool StoreRowOutput(
    const AttentionArgs& args, const AttendSource& source, int64_t result_row,
    const RowState& state, const float (&sums)[4 * kColumnGroups]) {
  const float normalizer = Normalizer(args, state.sum);
  bool finite = true;
  ForEachColumn<kColumnGroups>(args, source.strip, [&](int64_t column, int n) {
    const float result = state.sum == 0 ? 0.0F : sums[n] * normalizer;
    finite = finite && IsFinite(result);
    StoreOutput(args, result_row * args.value.width + column, result);
  });
  return finite;
}

template <int kColumnGroups>
ATTENTION_KERNEL_CODE void StoreResults(
    const AttentionArgs& args, const AttendSource& source, int64_t result_row,
    const RowState& state, const float (&sums)[4 * kColumnGroups]) {
  const FinishedRow row = FinishRow(args, state, result_row);
  const bool finite =
      StoreRowOutput<kColumnGroups>(args, source, result_row, row.state, sums);
  if (!finite) MarkNotFinite(args, row.state, result_row);
  if (source.strip == 0 && TileKey(0) == 0) {
    StoreRowState(args, row, result_row);
  }
}

template <int kColumnGroups>
ATTENTION_KERNEL_CODE void StorePartial(
    const AttentionArgs& args, const AttendSource& source, int64_t result_row,
    const RowState& state, const float (&sums)[4 * kColumnGroups]) {
  float* const to = PartialOf(args, source.split, result_row);
  if (source.strip == 0 && TileKey(0) == 0) StorePartialState(state, to);
  ForEachColumn<kColumnGroups>(args, source.strip, [&](int64_t column, int n) {
    to[kPartialValues + column] = sums[n];
  });
}

/// Calls store(result row, state, sums) for the thread's rows, their states
/// complete.
template <int kColumnGroups, int kSide, typename Store>
ATTENTION_KERNEL_CODE void StoreRows(const AttentionArgs& args,
                                     const AttendMemory& memory,
                                     const ThreadState<kSide>& state,
                                     const Columns<kColumnGroups, kSide>& sums,
                                     const Store& store) {
  ATTENTION_UNROLL_ALL
  for (int m = 0; m < kSide * kQuad; ++m) {
    RowState row = state.rows[m];
    row.sum = SumOfRow(row.sum);
    const RowInfo& info = memory.rows[TileRow(m)];
    if (info.query >= 0) store(ResultRow(args, info), row, sums[m]);
  }
}

/// From a tile's finished scores to weights.
template <typename Accumulation, int kColumnGroups, int kSide>
ATTENTION_KERNEL_CODE void AddTile(const AttentionArgs& args, int64_t first_key,
                                   const AttendMemory& memory,
                                   Scores<kSide>& scores,
                                   ThreadState<kSide>& state,
                                   Columns<kColumnGroups, kSide>& sums) {
  const RowInfo* const rows = memory.rows + Opaque(TileRow(0));
  float factors[kSide * kQuad];
  AddToSoftmax<Accumulation, kSide>(scores, state, factors);
  ATTENTION_UNROLL_ALL
  for (int m = 0; m < kSide * kQuad; ++m) {
    if (args.dropout.active != 0) {
      DropWeights(args, rows[TileIndex(m)], first_key, kLeftOut, scores[m]);
    }
    for (float& sum : sums[m]) sum = Accumulation::Rescale(sum, factors[m]);
  }
}

/// The softmax and the weighted values of a tile of rows over `keys`.
template <Score kScore, typename Accumulation, int kColumnGroups, int kSide,
          bool kPaged>
ATTENTION_KERNEL_CODE void SweepKeys(const AttentionArgs& args, KeySpan keys,
                                     const AttendMemory& memory,
                                     ThreadState<kSide>& state,
                                     Columns<kColumnGroups, kSide>& sums) {
  constexpr int64_t kKeys = kSide * kAttendKeys;
  const Epilogue epilogue = MakeEpilogue(args);
  for (RowState& row : state.rows) row = {-Infinity(), 0.0F};
  int64_t first_key = keys.begin / kKeys * kKeys;
  auto stages = BeginStages<kScore, kColumnGroups, kSide, kPaged>(
      args, memory, first_key, keys.end);
  for (; first_key < keys.end; first_key += kKeys) {
    Scores<kSide> scores;
    ComputeScores<kScore>(args, stages, scores);
    FinishScores<kSide>(args, epilogue, first_key, memory, scores);
    Accumulation::SetScores(args, first_key, memory, scores);
    AddTile<Accumulation, kColumnGroups, kSide>(args, first_key, memory, scores,
                                                state, sums);
    AddValues<Accumulation, kColumnGroups, kSide>(args, first_key, memory,
                                                  stages, scores, sums);
  }
}

/// The block's number in its grid says what it works on, here as in every
/// kernel. kColumnGroups: groups of 64 columns of the values, 1 or 2. kSide:
/// AttendSide().
template <Score kScore, int kColumnGroups, int kSide, bool kPaged = false>
ATTENTION_KERNEL_CODE void Attend(const AttentionArgs& args, int64_t block) {
  constexpr int kRows = kSide * kAttendRows;
  const AttendMemory memory = MakeAttendMemory<kSide>();
  const AttendPlace place =
      MakeAttendPlace(args, block, kRows, ValueStrips(args));
  SetAttendSource<kScore, kSide>(args, place, memory);
  const RowTile rows = MakeRowTile<kRows>(args, place.kv_group, place.first_row,
                                          place.keys, memory.rows);
  ThreadState<kSide> state;
  Columns<kColumnGroups, kSide> sums = {};
  SweepKeys<kScore, Plain, kColumnGroups, kSide, kPaged>(args, rows.any, memory,
                                                         state, sums);
  StoreRows<kColumnGroups, kSide>(
      args, memory, state, sums,
      [&](int64_t row, const RowState& whole, const auto& of) {
        const AttendSource& source = *memory.source;
        if (args.splits > 1) {
          StorePartial<kColumnGroups>(args, source, row, whole, of);
        } else {
          StoreResults<kColumnGroups>(args, source, row, whole, of);
        }
      });
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_ATTEND_INL_H_
