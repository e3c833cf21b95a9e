#ifndef ATTENTION_CORE_CUDA_KERNELS_ATTEND_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_ATTEND_INL_H_

// The fused kernel in FP32: tiles of scores, the online softmax and weighted
// values without the matrix of scores ever in memory (Dao, "FlashAttention-2",
// 2023).

#include "core/cuda/kernels/mask-inl.h"
#include "core/cuda/kernels/philox-inl.h"
#include "core/cuda/kernels/rows-inl.h"
#include "core/cuda/kernels/score-inl.h"

namespace attention::cuda {

/// A block's part of the work.
struct AttendPlace {
  Lane lane;
  int64_t first_row;  // of the lane
  int64_t slice;      // of the values' columns
  int64_t split;      // of the keys
  KeySpan keys;
};

ATTENTION_KERNEL_CODE AttendPlace MakeAttendPlace(const AttentionArgs& args,
                                                  int64_t index,
                                                  int64_t tile_rows,
                                                  int64_t slices) {
  AttendPlace place;
  place.split = index % args.splits;
  index /= args.splits;
  place.slice = index % slices;
  index /= slices;
  const int64_t tiles = CeilDivide(RowsPerLane(args), tile_rows);
  // The last rows first: under a causal mask they have the most keys, and what
  // is begun last should be short.
  place.first_row = (tiles - 1 - index % tiles) * tile_rows;
  place.lane = LaneOf(args, index / tiles);
  place.keys = {0, args.key_length};
  if (args.splits > 1) {
    place.keys.begin =
        Least(args.key_length, place.split * args.keys_per_split);
    place.keys.end =
        Least(args.key_length, place.keys.begin + args.keys_per_split);
  }
  return place;
}

ATTENTION_KERNEL_CODE const float* TanhWeights(const AttentionArgs& args,
                                               const Lane& lane) {
  return args.tanh_weights + lane.first_head * args.tanh_weight_stride;
}

/// The sum of |tanh_weights|, on every thread of the warp.
ATTENTION_KERNEL_CODE float SumOfTanhWeights(const AttentionArgs& args,
                                             const Lane& lane) {
  float sum = 0;
  for (int i = ThreadIndex() % kWarp; i < args.key.width; i += kWarp) {
    sum += fabsf(TanhWeights(args, lane)[i]);
  }
  for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += ShuffleXor(sum, mask);
  return sum;
}

template <Score kScore>
ATTENTION_KERNEL_CODE Epilogue MakeLaneEpilogue(const AttentionArgs& args,
                                                const Lane& lane) {
  Epilogue epilogue = MakeEpilogue<kScore>(args);
  if constexpr (kScore == Score::kAdditive) {
    epilogue.magnitude = SumOfTanhWeights(args, lane);
    epilogue.has_magnitude = true;
  }
  return epilogue;
}

/// Notes what the block reads; it is there after the next SyncBlock().
template <Score kScore>
ATTENTION_KERNEL_CODE void SetAttendSource(const AttentionArgs& args,
                                           const AttendPlace& place,
                                           const AttendMemory& memory) {
  if (ThreadIndex() != 0) return;
  const Lane& lane = place.lane;
  AttendSource source;
  source.query_begin =
      (lane.first_result_row + place.first_row) * int64_t{args.query.width};
  source.key_begin = RowsBegin(args, args.key, lane.batch, lane.first_head);
  source.value_begin = RowsBegin(args, args.value, lane.batch, lane.first_head);
  source.tanh_weights =
      kScore == Score::kAdditive ? TanhWeights(args, lane) : nullptr;
  source.query_count = Least(kAttendRows, RowsPerLane(args) - place.first_row);
  source.slice = place.slice;
  source.split = place.split;
  source.unused = 0;
  *memory.source = source;
}

/// The thread's scores of one row, masked and times log2 e.
ATTENTION_KERNEL_CODE void FinishRowScores(
    const AttentionArgs& args, const Epilogue& epilogue, const RowInfo& row,
    int64_t first_key, float (&scores)[kTileKeys], float& magnitude) {
  const int64_t mask =
      args.attend_mask.data == nullptr
          ? 0
          : RowOffset(args.attend_mask, row.batch, row.head, row.query);
  const int64_t bias =
      args.bias.data == nullptr
          ? 0
          : RowOffset(args.bias, row.batch, row.head, row.query);
  for (int n = 0; n < kTileKeys; ++n) {
    const int64_t key = first_key + ThreadKey() + n;
    scores[n] =
        key >= row.begin && key < row.end
            ? FinishScore(args, epilogue, mask, bias, key, scores[n], magnitude)
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

/// What a thread keeps of its rows: maxima are the rows', sums and magnitudes
/// those of its own keys.
struct ThreadState {
  RowState rows[kTileRows];
};

/// Makes weights of scores, relative to each row's maximum so far, and returns
/// in `factors` what was gathered before has to be multiplied by.
ATTENTION_KERNEL_CODE void AddToSoftmax(Scores& scores, ThreadState& state,
                                        float (&factors)[kTileRows]) {
  ATTENTION_UNROLL_ALL
  for (int m = 0; m < kTileRows; ++m) {
    RowState& row = state.rows[m];
    float largest = -Infinity();
    for (int n = 0; n < kTileKeys; ++n) largest = Larger(largest, scores[m][n]);
    const float max = Larger(row.max, LargestOfRow(largest));
    const float base = Base(max);
    factors[m] = Exp2(row.max - base);
    row.max = max;
    row.sum *= factors[m];
    for (int n = 0; n < kTileKeys; ++n) {
      scores[m][n] = Exp2(scores[m][n] - base);
      row.sum += scores[m][n];
    }
  }
}

ATTENTION_KERNEL_CODE void DropWeights(const AttentionArgs& args,
                                       const RowInfo& row, int64_t first_key,
                                       float (&weights)[kTileKeys]) {
  const PhiloxWords words = DropoutWords(args.dropout, row.batch, row.head,
                                         row.query, first_key + ThreadKey());
  for (int n = 0; n < kTileKeys; ++n) {
    if (words.word[n] < args.dropout.threshold) weights[n] *= 0.0F;
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

/// Columns of the values that a thread sums: 4 of each group of 64.
inline constexpr int kColumnGroup = 64;
template <int kGroups>
using Columns = float[kTileRows][4 * kGroups];

/// Brings kAttendDepth rows of values, `count` of them there and others 0.
template <int kGroups, typename T>
ATTENTION_KERNEL_CODE void LoadValues(const T* values, int64_t count,
                                      int64_t width, int64_t first_column,
                                      float* to) {
  constexpr int kWidth = kGroups * kColumnGroup;
  constexpr int kPerRow = kWidth / kStretch;
  for (int i = ThreadIndex(); i < kAttendDepth * kPerRow; i += kAttendThreads) {
    const int row = i / kPerRow;
    const int column = i % kPerRow * kStretch;
    T numbers[kStretch] = {};
    if (row < count && first_column + column < width) {
      LoadStretch(values + row * width, first_column + column, width, numbers);
    }
    for (int half = 0; half < 2; ++half) {
      Float4 wide;
      for (int n = 0; n < 4; ++n) wide.at[n] = Widen(numbers[4 * half + n]);
      const int at = row * kWidth + column + 4 * half;
      StoreFloat4(to + at, wide);
    }
  }
}

template <int kGroups>
ATTENTION_KERNEL_CODE void LoadValuesOf(const Rows& values, int64_t begin,
                                        int64_t count, int64_t first_column,
                                        float* to) {
  if (values.type == Element::kFloat32) {
    LoadValues<kGroups>(static_cast<const float*>(values.data) + begin, count,
                        values.width, first_column, to);
  } else if (values.type == Element::kFloat16) {
    LoadValues<kGroups>(static_cast<const Half*>(values.data) + begin, count,
                        values.width, first_column, to);
  } else {
    LoadValues<kGroups>(static_cast<const Brain*>(values.data) + begin, count,
                        values.width, first_column, to);
  }
}

/// sums += weights * values for the kAttendDepth keys from `first` on.
template <int kGroups>
ATTENTION_KERNEL_CODE void AddWeighted(const AttendMemory& memory, int first,
                                       Columns<kGroups>& sums) {
  constexpr int kWidth = kGroups * kColumnGroup;
  ATTENTION_UNROLL(8)
  for (int j = 0; j < kAttendDepth; ++j) {
    const Float4 weights =
        LoadFloat4(memory.weights + (first + j) * kAttendPitch + ThreadRow());
    for (int group = 0; group < kGroups; ++group) {
      const int at = j * kWidth + group * kColumnGroup + ThreadKey();
      const Float4 values = LoadFloat4(memory.values + at);
      ATTENTION_UNROLL_ALL
      for (int m = 0; m < kTileRows; ++m) {
        for (int n = 0; n < 4; ++n) {
          float& sum = sums[m][4 * group + n];
          sum = Fma(weights.at[m], values.at[n], sum);
        }
      }
    }
  }
}

template <int kGroups>
ATTENTION_KERNEL_CODE void AddValues(const AttentionArgs& args,
                                     int64_t first_key,
                                     const AttendMemory& memory,
                                     Columns<kGroups>& sums) {
  const auto count =
      static_cast<int>(Least(kAttendKeys, args.key_length - first_key));
  for (int first = 0; first < count; first += kAttendDepth) {
    SyncBlock();
    LoadValuesOf<kGroups>(
        args.value,
        memory.source->value_begin + (first_key + first) * args.value.width,
        count - first, memory.source->slice * kAttendValues, memory.values);
    SyncBlock();
    AddWeighted<kGroups>(memory, first, sums);
  }
}

/// Calls visit(column of the output, the sum's index) for the thread's columns.
template <int kGroups, typename Visit>
ATTENTION_KERNEL_CODE void ForEachColumn(const AttentionArgs& args,
                                         int64_t slice, const Visit& visit) {
  for (int group = 0; group < kGroups; ++group) {
    for (int n = 0; n < 4; ++n) {
      const int within = group * kColumnGroup + ThreadKey() + n;
      const int64_t column = slice * kAttendValues + within;
      if (column < args.value.width) visit(column, 4 * group + n);
    }
  }
}

template <int kGroups>
ATTENTION_KERNEL_CODE void StoreResults(const AttentionArgs& args,
                                        const AttendSource& source,
                                        int64_t result_row,
                                        const RowState& state,
                                        const float (&sums)[4 * kGroups]) {
  const float normalizer = Normalizer(args, state.sum);
  bool finite = true;
  ForEachColumn<kGroups>(args, source.slice, [&](int64_t column, int n) {
    const float result = state.sum == 0 ? 0.0F : sums[n] * normalizer;
    finite = finite && IsFinite(result);
    StoreOutput(args, result_row * args.value.width + column, result);
  });
  if (!finite) MarkNotFinite(args, state, result_row);
  if (source.slice == 0 && ThreadKey() == 0) {
    StoreRowState(args, state, result_row);
  }
}

template <int kGroups>
ATTENTION_KERNEL_CODE void StorePartial(const AttentionArgs& args,
                                        const AttendSource& source,
                                        int64_t result_row,
                                        const RowState& state,
                                        const float (&sums)[4 * kGroups]) {
  float* const to = PartialOf(args, source.split, result_row);
  if (source.slice == 0 && ThreadKey() == 0) StorePartialState(state, to);
  ForEachColumn<kGroups>(args, source.slice, [&](int64_t column, int n) {
    to[4 + column] = sums[n];
  });
}

template <int kGroups>
ATTENTION_KERNEL_CODE void StoreRows(const AttentionArgs& args,
                                     const AttendMemory& memory,
                                     const ThreadState& state,
                                     const Columns<kGroups>& sums) {
  ATTENTION_UNROLL_ALL
  for (int m = 0; m < kTileRows; ++m) {
    RowState row = state.rows[m];
    row.sum = SumOfRow(row.sum);
    row.magnitude = LargestOfRow(row.magnitude);
    const RowInfo& info = memory.rows[ThreadRow() + m];
    if (info.query < 0) continue;
    const int64_t result_row = ResultRow(args, info);
    if (args.splits > 1) {
      StorePartial<kGroups>(args, *memory.source, result_row, row, sums[m]);
    } else {
      StoreResults<kGroups>(args, *memory.source, result_row, row, sums[m]);
    }
  }
}

/// From a tile's sums of terms to weights, which the block is shown.
template <int kGroups>
ATTENTION_KERNEL_CODE void AddTile(const AttentionArgs& args,
                                   const Epilogue& epilogue, int64_t first_key,
                                   const AttendMemory& memory, Scores& scores,
                                   ThreadState& state, Columns<kGroups>& sums) {
  const RowInfo* const rows = memory.rows + Opaque(ThreadRow());
  ATTENTION_UNROLL_ALL
  for (int m = 0; m < kTileRows; ++m) {
    FinishRowScores(args, epilogue, rows[m], first_key, scores[m],
                    state.rows[m].magnitude);
  }
  float factors[kTileRows];
  AddToSoftmax(scores, state, factors);
  ATTENTION_UNROLL_ALL
  for (int m = 0; m < kTileRows; ++m) {
    if (args.dropout.active != 0) {
      DropWeights(args, rows[m], first_key, scores[m]);
    }
    for (float& sum : sums[m]) sum *= factors[m];
  }
  ShowWeights(memory, scores);
}

/// The block's number in its grid says what it works on, here as in every
/// kernel. kGroups: groups of 64 columns of the values, 1 or 2.
template <Score kScore, int kGroups>
ATTENTION_KERNEL_CODE void Attend(const AttentionArgs& args, int64_t block) {
  const AttendMemory memory = MakeAttendMemory();
  const AttendPlace place =
      MakeAttendPlace(args, block, kAttendRows, ValueSlices(args));
  SetAttendSource<kScore>(args, place, memory);
  const RowTile rows = MakeRowTile<kAttendRows>(
      args, place.lane, place.first_row, place.keys, memory.rows);
  const Epilogue epilogue = MakeLaneEpilogue<kScore>(args, place.lane);
  ThreadState state;
  Columns<kGroups> sums = {};
  for (RowState& row : state.rows) row = {-Infinity(), 0.0F, 0.0F};

  int64_t first_key = rows.any.begin / kAttendKeys * kAttendKeys;
  for (; first_key < rows.any.end; first_key += kAttendKeys) {
    Scores scores;
    ComputeScores<kScore>(args, first_key, memory, scores);
    AddTile<kGroups>(args, epilogue, first_key, memory, scores, state, sums);
    AddValues<kGroups>(args, first_key, memory, sums);
  }
  StoreRows<kGroups>(args, memory, state, sums);
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_ATTEND_INL_H_
