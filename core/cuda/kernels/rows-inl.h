#ifndef ATTENTION_CORE_CUDA_KERNELS_ROWS_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_ROWS_INL_H_

// What kernels know of rows: which head and query they are, which keys they
// read, and what becomes of a row in the end.

#include <cmath>
#include <cstdint>

#include "core/cuda/kernels/arguments.h"
#include "core/cuda/kernels/elements-inl.h"
#include "core/cuda/kernels/limits.h"
#include "core/cuda/portable/portable.h"

namespace attention::cuda {

inline constexpr float kLog2E = 1.4426950408889634F;

ATTENTION_KERNEL_CODE float Infinity() { return BitsToFloat(0x7F800000U); }
ATTENTION_KERNEL_CODE bool IsNan(float x) { return x != x; }
ATTENTION_KERNEL_CODE bool IsFinite(float x) {
  return (FloatToBits(x) & 0x7F800000U) != 0x7F800000U;
}

/// Query heads that share keys, of one batch entry.
struct KvGroup {
  int64_t batch;
  int64_t first_head;
  int64_t first_result_row;  // among (B, Hq, Lq)
};

ATTENTION_KERNEL_CODE KvGroup KvGroupOf(const AttentionArgs& args,
                                        int64_t index) {
  const int64_t groups_per_batch = args.query_heads / args.heads_per_group;
  const int64_t batch = index / groups_per_batch;
  const int64_t head = index % groups_per_batch * args.heads_per_group;
  return {batch, head, (batch * args.query_heads + head) * args.query_length};
}

/// The row's number `head` ... of a tensor of fewer heads, which neighbours
/// share.
ATTENTION_KERNEL_CODE int64_t RowsBegin(const AttentionArgs& args,
                                        const Rows& rows, int64_t batch,
                                        int64_t query_head) {
  const int64_t head = query_head / (args.query_heads / rows.heads);
  return (batch * rows.heads + head) * rows.length * rows.width;
}

/// Where the rows of keys, or of values, begin that one query head reads. Code
/// for pages is in kernels for several entries alone.
template <bool kPaged>
struct HeadRows {
  const void* data;
  const void* const* pages;  // null: in one piece, from data on
  int64_t begin;             // element of the head's first row, or of a page's
  uint32_t page_rows;
  int32_t width;

  /// T: the rows' type.
  template <typename T>
  ATTENTION_KERNEL_CODE const T* At(int64_t row) const {
    if constexpr (kPaged) {
      if (pages != nullptr) {
        const auto at = static_cast<uint32_t>(row);
        const uint32_t page = at / page_rows;
        return static_cast<const T*>(pages[page]) + begin +
               int64_t{at - page * page_rows} * width;
      }
    }
    return static_cast<const T*>(data) + begin + row * width;
  }
};

/// `begin`: as RowsBegin() has it.
template <bool kPaged>
ATTENTION_KERNEL_CODE HeadRows<kPaged> HeadRowsOf(const Rows& rows,
                                                  const void* const* pages,
                                                  int64_t begin) {
  return {rows.data, pages, begin, static_cast<uint32_t>(rows.length),
          rows.width};
}

ATTENTION_KERNEL_CODE int64_t Least(int64_t a, int64_t b) {
  return a < b ? a : b;
}
ATTENTION_KERNEL_CODE int64_t Most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

ATTENTION_KERNEL_CODE KeySpan SpanOf(const AttentionArgs& args, int64_t batch,
                                     int64_t query) {
  if (args.key_ranges == nullptr) return {0, args.key_length};
  return args.key_ranges[batch * args.query_length + query];
}

/// What is known of a tile's row; in shared memory.
struct RowInfo {
  int64_t begin;  // of the keys that it reads and the block works on
  int64_t end;
  int64_t query;  // -1: there is no such row
  int32_t head;
  int32_t batch;
};
static_assert(sizeof(RowInfo) == 32);

ATTENTION_KERNEL_CODE int64_t ResultRow(const AttentionArgs& args,
                                        const RowInfo& row) {
  return (row.batch * args.query_heads + row.head) * args.query_length +
         row.query;
}

/// A tile's rows, and which keys they read.
struct RowTile {
  RowInfo* rows;
  int64_t first;  // row of the kv group
  int64_t count;
  KeySpan any;    // spans the keys that any row reads
  KeySpan every;  // the keys that every row reads, masks aside
};

ATTENTION_KERNEL_CODE RowInfo MakeRowInfo(const AttentionArgs& args,
                                          const KvGroup& kv_group, int64_t row,
                                          bool exists, KeySpan keys) {
  const int64_t query = row % args.query_length;
  const KeySpan span = SpanOf(args, kv_group.batch, query);
  RowInfo info;
  info.begin = Most(span.begin, keys.begin);
  info.end = exists ? Least(span.end, keys.end) : info.begin;
  info.query = exists ? query : -1;
  info.head =
      static_cast<int32_t>(kv_group.first_head + row / args.query_length);
  info.batch = static_cast<int32_t>(kv_group.batch);
  return info;
}

/// Fills in `info` for rows first ... of a kv group, limited to `keys`: the
/// block, for which they are there after the next SyncBlock().
template <int kRows>
ATTENTION_KERNEL_CODE void FillRows(const AttentionArgs& args,
                                    const KvGroup& kv_group, int64_t first,
                                    KeySpan keys, RowInfo* info) {
  if (ThreadIndex() >= kRows) return;
  const bool exists = ThreadIndex() < RowsPerGroup(args) - first;
  info[ThreadIndex()] = MakeRowInfo(
      args, kv_group, first + (exists ? ThreadIndex() : 0), exists, keys);
}

/// Which keys some rows read together.
struct KeySpans {
  KeySpan any;    // spans the keys that any row reads
  KeySpan every;  // the keys that every row reads
};

ATTENTION_KERNEL_CODE void AddSpan(const KeySpan& span, KeySpans& spans) {
  spans.every.begin = Most(spans.every.begin, span.begin);
  spans.every.end = Least(spans.every.end, span.end);
  if (span.begin >= span.end) return;
  spans.any.begin = Least(spans.any.begin, span.begin);
  spans.any.end = Most(spans.any.end, span.end);
}

/// Of all rows of the warp's threads.
ATTENTION_KERNEL_CODE KeySpans SpansOfWarp(KeySpans spans) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    KeySpan& any = spans.any;
    any.begin = Least(any.begin, ShuffleXor(any.begin, mask));
    any.end = Most(any.end, ShuffleXor(any.end, mask));
    KeySpan& every = spans.every;
    every.begin = Most(every.begin, ShuffleXor(every.begin, mask));
    every.end = Least(every.end, ShuffleXor(every.end, mask));
  }
  return spans;
}

/// What rows that were filled in read together, of `keys`. The warp.
template <int kRows>
ATTENTION_KERNEL_CODE RowTile SpanRows(const AttentionArgs& args, int64_t first,
                                       KeySpan keys, RowInfo* info) {
  const int64_t count = Least(kRows, RowsPerGroup(args) - first);
  KeySpans spans = {{keys.end, keys.begin}, keys};
  for (int r = ThreadIndex() % kWarp; r < count; r += kWarp) {
    AddSpan({info[r].begin, info[r].end}, spans);
  }
  spans = SpansOfWarp(spans);
  return {info, first, count, spans.any, spans.every};
}

/// Both. The block.
template <int kRows>
ATTENTION_KERNEL_CODE RowTile MakeRowTile(const AttentionArgs& args,
                                          const KvGroup& kv_group,
                                          int64_t first, KeySpan keys,
                                          RowInfo* info) {
  FillRows<kRows>(args, kv_group, first, keys, info);
  SyncBlock();
  if (args.key_ranges != nullptr) {
    return SpanRows<kRows>(args, first, keys, info);
  }
  const int64_t count = Least(kRows, RowsPerGroup(args) - first);
  return {info, first, count, keys, keys};
}

/// One row's softmax. Scores and maxima are not multiplied by log2 e: the
/// lowest finite ones would become -inf, which is no key. Differences are.
struct RowState {
  float max;  // -inf: no key yet
  float sum;  // relative to max
};

/// What exponentials are taken relative to.
ATTENTION_KERNEL_CODE float Base(float max) {
  return max == -Infinity() ? 0.0F : max;
}

/// e^x as Exp2() has powers of 2.
ATTENTION_KERNEL_CODE float Exp(float x) { return Exp2(x * kLog2E); }

/// Where a split's state of a row is: its maximum and sum, then, from
/// [kPartialValues] on, its weighted values.
ATTENTION_KERNEL_CODE float* PartialOf(const AttentionArgs& args, int64_t split,
                                       int64_t result_row) {
  return args.partials +
         (split * ResultRows(args) + result_row) * PartialStride(args);
}
inline constexpr int kPartialValues = 2;

ATTENTION_KERNEL_CODE void StorePartialState(const RowState& state,
                                             float* partial) {
  partial[0] = state.max;
  partial[1] = state.sum;
}

/// For `recompute`, which is not launched where no row has a mark.
ATTENTION_KERNEL_CODE void MarkRow(const AttentionArgs& args,
                                   int64_t result_row, RowMark mark) {
  args.marks[result_row] = mark;
  *args.marked = 1;
}

/// Marks a row of whose output some element is not finite: perhaps it is a
/// value of a key that takes no part, times 0. A row whose scores are NaN is
/// NaN in any case.
ATTENTION_KERNEL_CODE void MarkNotFinite(const AttentionArgs& args,
                                         const RowState& state,
                                         int64_t result_row) {
  if (!IsNan(state.sum)) MarkRow(args, result_row, RowMark::kNotFinite);
}

/// A row once all its keys are in, and its head's sink.
struct FinishedRow {
  /// The sum counts the sink, still relative to the keys' maximum; infinite
  /// where a row has a sink and no keys.
  RowState state;
  float lse;
};

ATTENTION_KERNEL_CODE FinishedRow FinishRow(const AttentionArgs& args,
                                            const RowState& state,
                                            int64_t result_row) {
  const bool empty = state.sum == 0;
  FinishedRow row = {state, empty ? -Infinity() : state.max + logf(state.sum)};
  if (args.sinks == nullptr) return row;
  const float sink = args.sinks[result_row / args.query_length];
  if (sink == -Infinity()) return row;
  const float top = Larger(row.lse, sink);
  const float keys = expf(row.lse - top);
  const float all = keys + expf(sink - top);
  row.state.sum = empty ? Infinity() : state.sum * (all / keys);
  row.lse = top + logf(all);
  return row;
}

/// Stores what one thread per row knows of it.
ATTENTION_KERNEL_CODE void StoreRowState(const AttentionArgs& args,
                                         const FinishedRow& row,
                                         int64_t result_row) {
  const RowState& state = row.state;
  if (args.lse != nullptr) args.lse[result_row] = row.lse;
  if (args.row_max != nullptr) {
    args.row_max[result_row] = state.max;
    args.row_sum[result_row] = state.sum;
  }
  if (state.sum == 0 && args.uniform_empty_rows != 0) {
    MarkRow(args, result_row, RowMark::kAveraged);
  }
}

/// The weight of every key in a row in which none takes part.
ATTENTION_KERNEL_CODE float EmptyRowWeight(const AttentionArgs& args) {
  return args.uniform_empty_rows != 0 ? 1 / static_cast<float>(args.key_length)
                                      : 0.0F;
}

/// What weighted values are multiplied by in the end.
ATTENTION_KERNEL_CODE float Normalizer(const AttentionArgs& args, float sum) {
  if (sum == 0) return 0;
  return (args.dropout.active != 0 ? args.dropout.kept : 1.0F) / sum;
}

ATTENTION_KERNEL_CODE void StoreOutput(const AttentionArgs& args, int64_t index,
                                       float value) {
  StoreFloat(args.output, args.output_type, index, value);
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_ROWS_INL_H_
