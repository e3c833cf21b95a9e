#ifndef ATTENTION_CORE_CUDA_KERNELS_ROWS_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_ROWS_INL_H_

// What kernels know of rows: which head and query they are, which keys they
// read, and what becomes of a row in the end.

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "core/cuda/kernels/arguments.h"
#include "core/cuda/kernels/limits.h"
#include "core/cuda/portable/portable.h"

namespace attention::cuda {

inline constexpr float kLog2E = 1.4426950408889634F;
inline constexpr double kLn2 = 0.6931471805599453;

/// Where the magnitudes of no score's terms add up to this, FP32 sums take more
/// than the tolerance has (core/cpu/care.h).
inline constexpr float kFlat = 0.5F;

ATTENTION_KERNEL_CODE float Infinity() { return BitsToFloat(0x7F800000U); }
ATTENTION_KERNEL_CODE bool IsNan(float x) { return x != x; }
ATTENTION_KERNEL_CODE bool IsFinite(float x) {
  return (FloatToBits(x) & 0x7F800000U) != 0x7F800000U;
}

/// The larger one; a NaN in b is passed over.
ATTENTION_KERNEL_CODE float Larger(float a, float b) { return b > a ? b : a; }

/// Query heads that share keys, of one batch entry.
struct Lane {
  int64_t batch;
  int64_t first_head;
  int64_t first_result_row;  // among (B, Hq, Lq)
};

ATTENTION_KERNEL_CODE Lane LaneOf(const AttentionArgs& args, int64_t index) {
  const int64_t lanes_per_batch = args.query_heads / args.heads_per_lane;
  const int64_t batch = index / lanes_per_batch;
  const int64_t head = index % lanes_per_batch * args.heads_per_lane;
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
  int64_t first;  // row of the lane
  int64_t count;
  KeySpan any;    // spans the keys that any row reads
  KeySpan every;  // the keys that every row reads, masks aside
};

ATTENTION_KERNEL_CODE RowInfo MakeRowInfo(const AttentionArgs& args,
                                          const Lane& lane, int64_t row,
                                          bool exists, KeySpan keys) {
  const int64_t query = row % args.query_length;
  const KeySpan span = SpanOf(args, lane.batch, query);
  RowInfo info;
  info.begin = Most(span.begin, keys.begin);
  info.end = exists ? Least(span.end, keys.end) : info.begin;
  info.query = exists ? query : -1;
  info.head = static_cast<int32_t>(lane.first_head + row / args.query_length);
  info.batch = static_cast<int32_t>(lane.batch);
  return info;
}

/// Fills in `info` for rows first ... of a lane, limited to `keys`. The block.
template <int kRows>
ATTENTION_KERNEL_CODE RowTile MakeRowTile(const AttentionArgs& args,
                                          const Lane& lane, int64_t first,
                                          KeySpan keys, RowInfo* info) {
  const int64_t count = Least(kRows, RowsPerLane(args) - first);
  if (ThreadIndex() < kRows) {
    const bool exists = ThreadIndex() < count;
    info[ThreadIndex()] = MakeRowInfo(
        args, lane, first + (exists ? ThreadIndex() : 0), exists, keys);
  }
  SyncBlock();
  if (args.key_ranges == nullptr) return {info, first, count, keys, keys};
  KeySpan any = {keys.end, keys.begin};
  KeySpan every = keys;
  for (int r = ThreadIndex() % kWarp; r < count; r += kWarp) {
    every.begin = Most(every.begin, info[r].begin);
    every.end = Least(every.end, info[r].end);
    if (info[r].begin >= info[r].end) continue;
    any.begin = Least(any.begin, info[r].begin);
    any.end = Most(any.end, info[r].end);
  }
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    any.begin = Least(any.begin, ShuffleXor(any.begin, mask));
    any.end = Most(any.end, ShuffleXor(any.end, mask));
    every.begin = Most(every.begin, ShuffleXor(every.begin, mask));
    every.end = Least(every.end, ShuffleXor(every.end, mask));
  }
  return {info, first, count, any, every};
}

/// One row's softmax, in logarithms to base 2.
struct RowState {
  float max;  // -inf: no key yet
  float sum;  // relative to max
  /// The largest sum of magnitudes of a score's terms, as far as it is known:
  /// never more than it is.
  float magnitude;
};

/// What exponentials are taken relative to.
ATTENTION_KERNEL_CODE float Base(float max) {
  return max == -Infinity() ? 0.0F : max;
}

template <typename T>
ATTENTION_KERNEL_CODE bool HasNan(const T* numbers, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (IsNan(Widen(numbers[i]))) return true;
  }
  return false;
}

/// True where a row's query alone makes every score NaN.
ATTENTION_KERNEL_CODE bool QueryHasNan(const AttentionArgs& args,
                                       int64_t result_row) {
  const int64_t width = args.query.width;
  const int64_t begin = result_row * width;
  switch (args.query.type) {
    case Element::kFloat32:
      return HasNan(static_cast<const float*>(args.query.data) + begin, width);
    case Element::kFloat16:
      return HasNan(static_cast<const Half*>(args.query.data) + begin, width);
    case Element::kBFloat16:
      return HasNan(static_cast<const Brain*>(args.query.data) + begin, width);
    default:
      return HasNan(static_cast<const double*>(args.query.data) + begin, width);
  }
}

/// True where a row's softmax already says that FP32 does not serve it.
/// Magnitudes of FP32 are infinite where a product overflowed: its score is
/// then not what it looks like. Where scores are so huge that their rounding
/// moves the exponentials of all keys out of FP32's range, the sum is 0 or
/// infinite although keys take part.
ATTENTION_KERNEL_CODE bool StateNeedsCare(const AttentionArgs& args,
                                          const RowState& state,
                                          int64_t result_row) {
  if (state.magnitude == Infinity() || state.sum == Infinity()) return true;
  if (IsNan(state.sum)) return !QueryHasNan(args, result_row);
  if (state.sum == 0) {
    return state.max != -Infinity() ||
           (args.uniform_empty_rows != 0 && args.key_length > 0);
  }
  return args.output_type == Element::kFloat32 && state.magnitude < kFlat;
}

/// Where a split's state of a row is: its maximum, sum and magnitude, then,
/// from [4] on, its weighted values.
ATTENTION_KERNEL_CODE float* PartialOf(const AttentionArgs& args, int64_t split,
                                       int64_t result_row) {
  return args.partials +
         (split * ResultRows(args) + result_row) * PartialStride(args);
}

ATTENTION_KERNEL_CODE void StorePartialState(const RowState& state,
                                             float* partial) {
  partial[0] = state.max;
  partial[1] = state.sum;
  partial[2] = state.magnitude;
}

/// Marks a row of whose output some element is not finite: perhaps it is a
/// value of a key that takes no part, times 0.
ATTENTION_KERNEL_CODE void MarkNotFinite(const AttentionArgs& args,
                                         const RowState& state,
                                         int64_t result_row) {
  if (args.careful_rows != nullptr &&
      !(IsNan(state.sum) && QueryHasNan(args, result_row))) {
    args.careful_rows[result_row] = 1;
  }
}

/// Stores what one thread per row knows of it.
ATTENTION_KERNEL_CODE void StoreRowState(const AttentionArgs& args,
                                         const RowState& state,
                                         int64_t result_row) {
  if (args.lse != nullptr) {
    const double natural = state.max * kLn2 + log(double{state.sum});
    args.lse[result_row] =
        state.sum == 0 ? -Infinity() : static_cast<float>(natural);
  }
  if (args.row_max != nullptr) {
    args.row_max[result_row] = state.max;
    args.row_sum[result_row] = state.sum;
  }
  if (args.careful_rows != nullptr && StateNeedsCare(args, state, result_row)) {
    args.careful_rows[result_row] = 1;
  }
}

/// What weighted values are multiplied by in the end.
ATTENTION_KERNEL_CODE float Normalizer(const AttentionArgs& args, float sum) {
  if (sum == 0) return 0;
  return (args.dropout.active != 0 ? static_cast<float>(args.dropout.kept)
                                   : 1.0F) /
         sum;
}

ATTENTION_KERNEL_CODE void StoreOutput(const AttentionArgs& args, int64_t index,
                                       float value) {
  if (args.output_type == Element::kFloat32) {
    static_cast<float*>(args.output)[index] = value;
  } else if (args.output_type == Element::kFloat16) {
    static_cast<Half*>(args.output)[index] = Round<Half>(value);
  } else {
    static_cast<Brain*>(args.output)[index] = Round<Brain>(value);
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_ROWS_INL_H_
