#ifndef ATTENTION_CORE_CUDA_KERNELS_RECOMPUTE_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_RECOMPUTE_INL_H_

// The output of rows that are marked, once more. A product has 0 * NaN = NaN,
// so the other kernels let a value that is not finite reach rows in which its
// key takes no part. Here it reaches those in which it does, with a look at
// every value: too slow for all rows, and nothing that finite data needs.

#include "core/cuda/kernels/attend-inl.h"

namespace attention::cuda {

ATTENTION_KERNEL_CODE bool IsAveraged(const AttentionArgs& args,
                                      const RowInfo& row) {
  return row.query >= 0 &&
         args.marks[ResultRow(args, row)] == RowMark::kAveraged;
}

/// How weighted values are added up here: one that is not finite is added where
/// its key takes part, however small the weight, and left out elsewhere.
struct MaskedValues {
  /// In rows that are averaged every key takes part alike.
  ATTENTION_KERNEL_CODE static void SetScores(const AttentionArgs& args,
                                              int64_t first_key,
                                              const AttendMemory& memory,
                                              Scores<1>& scores) {
    for (int m = 0; m < kQuad; ++m) {
      if (!IsAveraged(args, memory.rows[TileRow(m)])) continue;
      for (int n = 0; n < kQuad; ++n) {
        const int64_t key = first_key + TileKey(n);
        scores[m][n] = key < args.key_length ? 0.0F : -Infinity();
      }
    }
  }
  ATTENTION_KERNEL_CODE static float WeightOf(float score, float base) {
    return score == -Infinity() ? kLeftOut : Exp(score - base);
  }
  ATTENTION_KERNEL_CODE static float Rescale(float sum, float factor) {
    return IsFinite(sum) ? sum * factor : sum;
  }
  ATTENTION_KERNEL_CODE static float Add(float weight, float value, float sum) {
    if (IsFinite(value)) return Fma(weight, value, sum);
    return FloatToBits(weight) == FloatToBits(kLeftOut) ? sum : sum + value;
  }
};

/// Leaves of a tile's rows those that are marked; those to be averaged read
/// every key. Whether there are any of those, for the thread.
ATTENTION_KERNEL_CODE bool SelectMarkedRows(const AttentionArgs& args,
                                            const AttendMemory& memory) {
  if (ThreadIndex() >= kAttendRows) return false;
  RowInfo& row = memory.rows[ThreadIndex()];
  if (row.query < 0) return false;
  if (IsAveraged(args, row)) {
    row.begin = 0;
    row.end = args.key_length;
    return true;
  }
  if (args.marks[ResultRow(args, row)] == RowMark::kNone) {
    row.query = -1;
    row.end = row.begin;
  }
  return false;
}

/// Whether the thread finds a value that is not finite among those of the
/// block's columns: of every key, because kernels read more than rows' ranges.
template <int kColumnGroups, bool kPaged>
ATTENTION_KERNEL_CODE bool FindsNotFinite(const AttentionArgs& args,
                                          const AttendSource& source) {
  constexpr int kWarps = kAttendThreads / kWarp;
  const int64_t width = args.value.width;
  const int64_t first = source.strip * kAttendValues;
  const int64_t end =
      Least(width, first + int64_t{kColumnGroups} * kColumnGroup);
  const auto values =
      HeadRowsOf<kPaged>(args.value, args.value_pages, source.value_begin);
  bool found = false;
  for (int64_t key = ThreadIndex() / kWarp; key < args.key_length;
       key += kWarps) {
    WithElements(args.value.data, args.value.type, [&]<typename T>(const T*) {
      const T* const row = values.template At<T>(key);
      for (int64_t at = first + ThreadIndex() % kWarp; at < end; at += kWarp) {
        found = found || !IsFinite(Widen(row[at]));
      }
    });
  }
  return found;
}

/// `block` as of attend, for arguments without splits.
template <Score kScore, int kColumnGroups, bool kPaged = false>
ATTENTION_KERNEL_CODE void Recompute(const AttentionArgs& args, int64_t block) {
  const AttendMemory memory = MakeAttendMemory<1>();
  const AttendPlace place =
      MakeAttendPlace(args, block, kAttendRows, ValueStrips(args));
  const int64_t row = place.first_row + ThreadIndex();
  const bool marked =
      ThreadIndex() < kAttendRows && row < RowsPerGroup(args) &&
      args.marks[place.kv_group.first_result_row + row] != RowMark::kNone;
  if (!SyncBlockOr(marked)) return;

  SetAttendSource<kScore, 1>(args, place, memory);
  FillRows<kAttendRows>(args, place.kv_group, place.first_row, place.keys,
                        memory.rows);
  const bool averages = SyncBlockOr(SelectMarkedRows(args, memory));
  const KeySpan keys =
      SpanRows<kAttendRows>(args, place.first_row, place.keys, memory.rows).any;
  if (!SyncBlockOr(averages || FindsNotFinite<kColumnGroups, kPaged>(
                                   args, *memory.source))) {
    return;
  }
  ThreadState<1> state;
  Columns<kColumnGroups, 1> sums = {};
  SweepKeys<kScore, MaskedValues, kColumnGroups, 1, kPaged>(args, keys, memory,
                                                            state, sums);
  StoreRows<kColumnGroups, 1>(
      args, memory, state, sums,
      [&](int64_t result_row, const RowState& whole, const auto& of) {
        const FinishedRow finished = FinishRow(args, whole, result_row);
        StoreRowOutput<kColumnGroups>(args, *memory.source, result_row,
                                      finished.state, of);
      });
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_RECOMPUTE_INL_H_
