#ifndef ATTENTION_CORE_CUDA_KERNELS_SCORE_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_SCORE_INL_H_

// A tile of scores in FP32: 64 rows and 64 keys, of which each of 256 threads
// has 4 by 4. `attend` and `weights` both run it: for the same tile it gives
// the same bits in both.

#include "core/cuda/kernels/rows-inl.h"

namespace attention::cuda {

/// A block's shared memory.
struct AttendMemory {
  float* queries;       // [kAttendDepth][kAttendPitch], the row last
  float* keys;          // likewise
  float* values;        // over both: [kAttendDepth][kAttendValues]
  float* weights;       // [kAttendKeys][kAttendPitch], the row last
  RowInfo* rows;        // [kAttendRows]
  float* term_weights;  // [kAttendDepth]
  struct AttendSource* source;
};

/// What a block reads; in shared memory, for registers are scarce.
struct AttendSource {
  int64_t query_begin;        // element of query.data of the tile's first row
  int64_t key_begin;          // element of key.data, or of a page, of its key 0
  int64_t value_begin;        // likewise
  const float* term_weights;  // of the head
  int64_t query_count;
  int64_t strip;  // of the values' columns
  int64_t split;  // of the keys
  int64_t unused;
};
static_assert(sizeof(AttendSource) == 64);

ATTENTION_KERNEL_CODE AttendMemory MakeAttendMemory() {
  AttendMemory memory;
  constexpr int64_t kTile = kAttendDepth * kAttendPitch;
  memory.queries = reinterpret_cast<float*>(SharedMemory());
  memory.keys = memory.queries + kTile;
  memory.values = memory.queries;
  static_assert(2 * kTile >= kAttendDepth * kAttendValues);
  memory.weights = memory.keys + kTile;
  memory.rows =
      reinterpret_cast<RowInfo*>(memory.weights + kAttendKeys * kAttendPitch);
  memory.term_weights = reinterpret_cast<float*>(memory.rows + kAttendRows);
  memory.source =
      reinterpret_cast<AttendSource*>(memory.term_weights + kAttendDepth);
  return memory;
}

inline constexpr int kTileRows = 4;  // of one thread
inline constexpr int kTileKeys = 4;

/// Thread t has rows 4 (t / 16) ... and keys 4 (t % 16) ... of the tile: the 16
/// threads of a row are half a warp.
ATTENTION_KERNEL_CODE int ThreadRow() { return ThreadIndex() / 16 * kTileRows; }
ATTENTION_KERNEL_CODE int ThreadKey() { return ThreadIndex() % 16 * kTileKeys; }

/// Four floats at once; 16-byte aligned.
struct alignas(16) Float4 {
  float at[4];
};
ATTENTION_KERNEL_CODE Float4 LoadFloat4(const float* from) {
  return *reinterpret_cast<const Float4*>(from);
}
ATTENTION_KERNEL_CODE void StoreFloat4(float* to, const Float4& value) {
  *reinterpret_cast<Float4*>(to) = value;
}

/// Numbers that a thread brings from one row at a time.
inline constexpr int kStretch = 8;
static_assert(kAttendDepth * kAttendRows == int64_t{kStretch} * kAttendThreads);

template <typename T>
struct alignas(16) Stretch {
  T at[kStretch];
};

/// Brings columns first ... first + 7 of one row; 0 beyond `width`.
template <typename T>
ATTENTION_KERNEL_CODE void LoadStretch(const T* row, int64_t first,
                                       int64_t width, T (&to)[kStretch]) {
  constexpr int kAligned = 16 / static_cast<int>(sizeof(T));
  if (first + kStretch <= width && width % kAligned == 0) {
    const auto stretch = *reinterpret_cast<const Stretch<T>*>(row + first);
    for (int i = 0; i < kStretch; ++i) to[i] = stretch.at[i];
    return;
  }
  for (int i = 0; i < kStretch; ++i) {
    to[i] = first + i < width ? row[first + i] : T{};
  }
}

/// Brings a depth of 64 rows (`count` of them there, others 0) from row `first`
/// on into shared memory in FP32, columns first: each thread 8 columns of one
/// row.
template <typename T, typename Head>
ATTENTION_KERNEL_CODE void LoadDepth(const Head& rows, int64_t first,
                                     int64_t count, int64_t first_column,
                                     float* to) {
  constexpr int kRows = kAttendRows;
  const int row = ThreadIndex() % kRows;
  const int column = ThreadIndex() / kRows * kStretch;
  T numbers[kStretch] = {};
  if (row < count) {
    LoadStretch(rows.template At<T>(first + row), first_column + column,
                rows.width, numbers);
  }
  for (int i = 0; i < kStretch; ++i) {
    to[(column + i) * kAttendPitch + row] = Widen(numbers[i]);
  }
}

/// The same for rows of any type.
template <typename Head>
ATTENTION_KERNEL_CODE void LoadDepthOf(Element type, const Head& rows,
                                       int64_t first, int64_t count,
                                       int64_t first_column, float* to) {
  WithElements(rows.data, type, [&]<typename T>(const T*) {
    LoadDepth<T>(rows, first, count, first_column, to);
  });
}

using Scores = float[kTileRows][kTileKeys];

/// What a score is the sum of: `sum` and the term of one column. w is the
/// column's weight where there are such. Columns beyond the rows' width are 0
/// in all three, and add nothing. kUnroll: columns for which registers suffice.
template <Score kScore>
struct ScoreTerm;

template <>
struct ScoreTerm<Score::kDot> {
  static constexpr int kUnroll = 8;
  static constexpr bool kHasWeights = false;
  ATTENTION_KERNEL_CODE static float Add(float q, float k, float, float sum) {
    return Fma(q, k, sum);
  }
};

/// Differences lose nothing, however far from the origin points lie.
template <>
struct ScoreTerm<Score::kGaussian> {
  static constexpr int kUnroll = 8;
  static constexpr bool kHasWeights = false;
  ATTENTION_KERNEL_CODE static float Add(float q, float k, float, float sum) {
    const float difference = q - k;
    return Fma(difference, difference, sum);
  }
};

/// tanh(x) = 1 - 2 / (1 + e^2x), which is right where e^2x overflows, too.
template <>
struct ScoreTerm<Score::kAdditive> {
  static constexpr int kUnroll = 2;
  static constexpr bool kHasWeights = true;
  ATTENTION_KERNEL_CODE static float Add(float q, float k, float w, float sum) {
    constexpr float kTwoLog2E = 2.8853900817779268F;
    const float power = FastExp2((q + k) * kTwoLog2E);
    const float tanh = Fma(-2.0F, Reciprocal(1 + power), 1.0F);
    return Fma(w, tanh, sum);
  }
};

/// Adds the terms of a depth that lies in shared memory.
template <Score kScore>
ATTENTION_KERNEL_CODE void AddDepth(const AttendMemory& memory,
                                    Scores& scores) {
  ATTENTION_UNROLL(ScoreTerm<kScore>::kUnroll)
  for (int d = 0; d < kAttendDepth; ++d) {
    const Float4 q =
        LoadFloat4(memory.queries + d * kAttendPitch + ThreadRow());
    const Float4 k = LoadFloat4(memory.keys + d * kAttendPitch + ThreadKey());
    const float w =
        ScoreTerm<kScore>::kHasWeights ? memory.term_weights[d] : 0.0F;
    ATTENTION_UNROLL_ALL
    for (int m = 0; m < kTileRows; ++m) {
      for (int n = 0; n < kTileKeys; ++n) {
        scores[m][n] =
            ScoreTerm<kScore>::Add(q.at[m], k.at[n], w, scores[m][n]);
      }
    }
  }
}

/// Scores without factor of the thread's rows and keys; whatever for those that
/// do not exist. The block; memory.queries and keys are free again after the
/// next SyncBlock().
template <Score kScore, bool kPaged>
ATTENTION_KERNEL_CODE void ComputeScores(const AttentionArgs& args,
                                         int64_t first_key,
                                         const AttendMemory& memory,
                                         Scores& scores) {
  ATTENTION_UNROLL_ALL
  for (int m = 0; m < kTileRows; ++m) {
    for (int n = 0; n < kTileKeys; ++n) scores[m][n] = 0;
  }
  const int64_t width = args.key.width;
  for (int64_t depth = 0; depth < width; depth += kAttendDepth) {
    SyncBlock();
    const AttendSource& source = *memory.source;
    LoadDepthOf(args.query.type,
                HeadRowsOf<false>(args.query, nullptr, source.query_begin), 0,
                source.query_count, depth, memory.queries);
    LoadDepthOf(args.key.type,
                HeadRowsOf<kPaged>(args.key, args.key_pages, source.key_begin),
                first_key, Least(kAttendKeys, args.key_length - first_key),
                depth, memory.keys);
    if (ScoreTerm<kScore>::kHasWeights && ThreadIndex() < kAttendDepth) {
      const int64_t at = depth + ThreadIndex();
      memory.term_weights[ThreadIndex()] =
          at < width ? source.term_weights[at] : 0.0F;
    }
    SyncBlock();
    AddDepth<kScore>(memory, scores);
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_SCORE_INL_H_
