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
  float* tanh_weights;  // [kAttendDepth]
  struct AttendSource* source;
};

/// What a block reads; in shared memory, for registers are scarce.
struct AttendSource {
  int64_t query_begin;        // element of query.data of the tile's first row
  int64_t key_begin;          // element of key.data of key 0
  int64_t value_begin;        // likewise
  const float* tanh_weights;  // of the head
  int64_t query_count;
  int64_t slice;  // of the values' columns
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
  memory.tanh_weights = reinterpret_cast<float*>(memory.rows + kAttendRows);
  memory.source =
      reinterpret_cast<AttendSource*>(memory.tanh_weights + kAttendDepth);
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

/// Brings a depth of 64 rows (`count` of them there, others 0) into shared
/// memory, each thread 8 columns of one row: put(column, row, number).
template <typename T, typename Put>
ATTENTION_KERNEL_CODE void LoadDepth(const T* rows, int64_t count,
                                     int64_t width, int64_t first_column,
                                     const Put& put) {
  constexpr int kRows = kAttendRows;
  const int row = ThreadIndex() % kRows;
  const int column = ThreadIndex() / kRows * kStretch;
  T numbers[kStretch] = {};
  if (row < count) {
    LoadStretch(rows + row * width, first_column + column, width, numbers);
  }
  for (int i = 0; i < kStretch; ++i) put(column + i, row, numbers[i]);
}

/// The same for rows of any type, from element `begin` on.
template <typename Put>
ATTENTION_KERNEL_CODE void LoadDepthOf(const Rows& rows, int64_t begin,
                                       int64_t count, int64_t first_column,
                                       const Put& put) {
  switch (rows.type) {
    case Element::kFloat32:
      return LoadDepth(static_cast<const float*>(rows.data) + begin, count,
                       rows.width, first_column, put);
    case Element::kFloat16:
      return LoadDepth(static_cast<const Half*>(rows.data) + begin, count,
                       rows.width, first_column, put);
    case Element::kBFloat16:
      return LoadDepth(static_cast<const Brain*>(rows.data) + begin, count,
                       rows.width, first_column, put);
    default:
      return LoadDepth(static_cast<const double*>(rows.data) + begin, count,
                       rows.width, first_column, put);
  }
}

using Scores = float[kTileRows][kTileKeys];

/// Columns of rows that are summed by themselves, from 0: where one number is
/// much larger than all others, or squares, which do not cancel, grow, a score
/// is rounded at its full size some 20 times, not once for every column
/// (Higham, "Accuracy and Stability of Numerical Algorithms", 4.2).
inline constexpr int kPieceDepth = 16;
static_assert(kAttendDepth == 2 * kPieceDepth);

/// The products of a piece's queries and keys, or, for Gaussian scores, the
/// squares of their differences.
template <Score kScore>
ATTENTION_KERNEL_CODE void SumPiece(const AttendMemory& memory, int first,
                                    Scores& sums) {
  ATTENTION_UNROLL_ALL
  for (int m = 0; m < kTileRows; ++m) {
    for (int n = 0; n < kTileKeys; ++n) sums[m][n] = 0;
  }
  ATTENTION_UNROLL(8)
  for (int d = first; d < first + kPieceDepth; ++d) {
    const Float4 q =
        LoadFloat4(memory.queries + d * kAttendPitch + ThreadRow());
    const Float4 k = LoadFloat4(memory.keys + d * kAttendPitch + ThreadKey());
    ATTENTION_UNROLL_ALL
    for (int m = 0; m < kTileRows; ++m) {
      for (int n = 0; n < kTileKeys; ++n) {
        if constexpr (kScore == Score::kGaussian) {
          const float difference = q.at[m] - k.at[n];
          sums[m][n] = Fma(difference, difference, sums[m][n]);
        } else {
          sums[m][n] = Fma(q.at[m], k.at[n], sums[m][n]);
        }
      }
    }
  }
}

ATTENTION_KERNEL_CODE void AddScores(const Scores& from, Scores& to) {
  ATTENTION_UNROLL_ALL
  for (int m = 0; m < kTileRows; ++m) {
    for (int n = 0; n < kTileKeys; ++n) to[m][n] += from[m][n];
  }
}

template <Score kScore>
ATTENTION_KERNEL_CODE void AddDepth(const AttendMemory& memory,
                                    Scores& scores) {
  Scores depth;
  Scores piece;
  SumPiece<kScore>(memory, 0, depth);
  SumPiece<kScore>(memory, kPieceDepth, piece);
  AddScores(piece, depth);
  AddScores(depth, scores);
}

/// Projections beyond this have exponentials that FP32 does not hold.
inline constexpr double kLargestProjection = 43;

/// e^(2 p) of an FP64 projection, |p| <= kLargestProjection: 2^n 2^f with f
/// taken in FP64, so that the result is good to FP32's last place.
ATTENTION_KERNEL_CODE float ExpTwice(double p) {
  constexpr double kTwoLog2E = 2.8853900817779268;
  const double x = p * kTwoLog2E;
  const double whole = rint(x);
  return Exp2(static_cast<float>(x - whole)) * Exp2(static_cast<float>(whole));
}

/// tanh(p + q) = 1 - 2 / (1 + e^2p e^2q), one reciprocal for what was two
/// exponentials.
ATTENTION_KERNEL_CODE void AddTanhDepth(const AttendMemory& memory,
                                        Scores& scores) {
  ATTENTION_UNROLL(4)
  for (int d = 0; d < kAttendDepth; ++d) {
    const Float4 q =
        LoadFloat4(memory.queries + d * kAttendPitch + ThreadRow());
    const Float4 k = LoadFloat4(memory.keys + d * kAttendPitch + ThreadKey());
    const float w = memory.tanh_weights[d];
    ATTENTION_UNROLL_ALL
    for (int m = 0; m < kTileRows; ++m) {
      for (int n = 0; n < kTileKeys; ++n) {
        const float tanh =
            Fma(-2.0F, Reciprocal(Fma(q.at[m], k.at[n], 1.0F)), 1.0F);
        scores[m][n] = Fma(w, tanh, scores[m][n]);
      }
    }
  }
}

/// For projections whose exponentials overflow: high parts of half a depth
/// first, then their low parts. High parts that cancel do so exactly.
ATTENTION_KERNEL_CODE void AddExactTanhDepth(const AttendMemory& memory,
                                             const float* tanh_weights,
                                             Scores& scores) {
  constexpr int kHalf = kAttendDepth / 2;
  for (int d = 0; d < kHalf; ++d) {
    const float* const q = memory.queries + d * kAttendPitch + ThreadRow();
    const float* const k = memory.keys + d * kAttendPitch + ThreadKey();
    const float w = tanh_weights[d];
    ATTENTION_UNROLL_ALL
    for (int m = 0; m < kTileRows; ++m) {
      for (int n = 0; n < kTileKeys; ++n) {
        const float low =
            q[kHalf * kAttendPitch + m] + k[kHalf * kAttendPitch + n];
        scores[m][n] = Fma(w, tanhf(q[m] + k[n] + low), scores[m][n]);
      }
    }
  }
}

/// Puts projections as high and low parts: columns first ... first + 15.
struct PutParts {
  float* to;
  int first;

  ATTENTION_KERNEL_CODE void operator()(int column, int row,
                                        double number) const {
    constexpr int kHalf = kAttendDepth / 2;
    const int at = column - first;
    if (at < 0 || at >= kHalf) return;
    const auto high = static_cast<float>(number);
    const auto low = static_cast<float>(number - high);
    to[at * kAttendPitch + row] = high;
    // The low part of an infinity is NaN: infinity less itself.
    to[(kHalf + at) * kAttendPitch + row] = IsFinite(high) ? low : 0.0F;
  }
};

/// Puts exponentials, and remembers whether one could not be.
struct PutExponentials {
  float* to;
  bool* large;

  ATTENTION_KERNEL_CODE void operator()(int column, int row,
                                        double number) const {
    const bool fits =
        number <= kLargestProjection && number >= -kLargestProjection;
    // A NaN is as good here as elsewhere.
    if (!fits && number == number) *large = true;
    to[column * kAttendPitch + row] =
        fits || number != number ? ExpTwice(number) : 1.0F;
  }
};

struct PutWidened {
  float* to;
  template <typename T>
  ATTENTION_KERNEL_CODE void operator()(int column, int row, T number) const {
    to[column * kAttendPitch + row] = Widen(number);
  }
};

ATTENTION_KERNEL_CODE void ScoreAdditiveDepth(const AttentionArgs& args,
                                              int64_t first_key, int64_t depth,
                                              const AttendMemory& memory,
                                              Scores& scores) {
  const AttendSource& source = *memory.source;
  const int64_t width = args.key.width;
  const auto* const queries =
      static_cast<const double*>(args.query.data) + source.query_begin;
  const auto* const keys = static_cast<const double*>(args.key.data) +
                           source.key_begin + first_key * width;
  const int64_t key_count = Least(kAttendKeys, args.key_length - first_key);
  bool large = false;
  LoadDepth(queries, source.query_count, width, depth,
            PutExponentials{memory.queries, &large});
  LoadDepth(keys, key_count, width, depth,
            PutExponentials{memory.keys, &large});
  if (ThreadIndex() < kAttendDepth) {
    const int64_t at = depth + ThreadIndex();
    memory.tanh_weights[ThreadIndex()] =
        at < width ? source.tanh_weights[at] : 0.0F;
  }
  if (!SyncBlockOr(large)) return AddTanhDepth(memory, scores);
  for (int first = 0; first < kAttendDepth; first += kAttendDepth / 2) {
    LoadDepth(queries, source.query_count, width, depth,
              PutParts{memory.queries, first});
    LoadDepth(keys, key_count, width, depth, PutParts{memory.keys, first});
    SyncBlock();
    AddExactTanhDepth(memory, memory.tanh_weights + first, scores);
    SyncBlock();
  }
}

/// Scores without factor of the thread's rows and keys; whatever for those that
/// do not exist. The block; memory.queries and keys are free again after the
/// next SyncBlock().
template <Score kScore>
ATTENTION_KERNEL_CODE void ComputeScores(const AttentionArgs& args,
                                         int64_t first_key,
                                         const AttendMemory& memory,
                                         Scores& scores) {
  ATTENTION_UNROLL_ALL
  for (int m = 0; m < kTileRows; ++m) {
    for (int n = 0; n < kTileKeys; ++n) scores[m][n] = 0;
  }
  for (int64_t depth = 0; depth < args.key.width; depth += kAttendDepth) {
    SyncBlock();
    if constexpr (kScore == Score::kAdditive) {
      ScoreAdditiveDepth(args, first_key, depth, memory, scores);
    } else {
      const AttendSource& source = *memory.source;
      LoadDepthOf(args.query, source.query_begin, source.query_count, depth,
                  PutWidened{memory.queries});
      LoadDepthOf(args.key, source.key_begin + first_key * args.key.width,
                  Least(kAttendKeys, args.key_length - first_key), depth,
                  PutWidened{memory.keys});
      SyncBlock();
      AddDepth<kScore>(memory, scores);
    }
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_SCORE_INL_H_
