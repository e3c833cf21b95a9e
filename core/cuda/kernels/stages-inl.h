#ifndef ATTENTION_CORE_CUDA_KERNELS_STAGES_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_STAGES_INL_H_

// What `attend`, `recompute` and `weights` bring to shared memory: while a
// block computes with one stage, the other one is filled.

#include "core/cuda/kernels/tile_memory-inl.h"

namespace attention::cuda {

/// Four numbers of a row, which are brought together.
template <typename T>
struct alignas(kQuad * sizeof(T)) Quad {
  T at[kQuad];
};

/// Begins to bring columns first ... first + 3 of a row in FP32; 0 beyond
/// `width`, or if there is no such row. An address that is not read has to be
/// one all the same.
template <typename T>
ATTENTION_KERNEL_CODE void BringQuad(const T* row, bool exists, int first,
                                     int width, float* to) {
  const bool aligned = width % kQuad == 0;
  const int count = exists ? width - first : 0;  // or more
  if constexpr (sizeof(T) == sizeof(float)) {
    if (aligned) {
      return CopyAsync<16>(to, row + (count > 0 ? first : 0), count > 0);
    }
    for (int i = 0; i < kQuad; ++i) {
      CopyAsync<4>(to + i, row + (i < count ? first + i : 0), i < count);
    }
  } else {
    Quad<T> quad = {};
    if (aligned && count > 0) {
      quad = *reinterpret_cast<const Quad<T>*>(row + first);
    } else {
      for (int i = 0; i < kQuad; ++i) {
        if (i < count) quad.at[i] = row[first + i];
      }
    }
    Float4 wide;
    for (int i = 0; i < kQuad; ++i) wide.at[i] = Widen(quad.at[i]);
    StoreFloat4(to, wide);
  }
}

/// Begins to bring a depth of kSide * 64 rows (`count` of them there) from row
/// `first` on.
template <int kSide, typename T, typename Head>
ATTENTION_KERNEL_CODE void BringDepth(const Head& rows, int64_t first,
                                      int count, int first_column, float* to) {
  const int thread = Opaque(ThreadIndex());
  const int quad = thread % 4;
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < kSide; ++n) {
    const int place = (n * kAttendThreads + thread) / 4;
    const int row = RowOfPlace(place);
    const bool exists = row < count;
    BringQuad(rows.template At<T>(first + (exists ? row : 0)), exists,
              first_column + quad * kQuad, rows.width,
              to + QuadAt(place, quad));
  }
}

/// Columns of the values that a block sums: 4 of each group of 64 for a thread.
inline constexpr int kColumnGroup = 64;

/// Begins to bring kCount rows of values from row `first` on, `count` of them
/// there.
template <int kCount, int kColumnGroups, typename T, typename Head>
ATTENTION_KERNEL_CODE void BringValues(const Head& values, int64_t first,
                                       int count, int first_column, float* to) {
  constexpr int kPerRow = kColumnGroups * kColumnGroup / kQuad;
  const int thread = Opaque(ThreadIndex());
  const int column = first_column + thread % kPerRow * kQuad;
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < kCount * kPerRow / kAttendThreads; ++n) {
    const int i = n * kAttendThreads + thread;
    const int row = i / kPerRow;
    const bool exists = row < count;
    BringQuad(values.template At<T>(first + (exists ? row : 0)), exists, column,
              values.width, to + static_cast<int64_t>(i * kQuad));
  }
}

/// Brings what a tile of rows needs of keys up to `end`, in order: of each tile
/// of keys all depths, and then the values, unless kColumnGroups is 0.
template <Score kScore, int kColumnGroups, int kSide, bool kPaged>
struct Stages {
  static constexpr int kStage = static_cast<int>(AttendStage(kSide));
  static constexpr int kTile = kSide * static_cast<int>(kAttendRows);
  /// Keys whose values fill a stage.
  static constexpr int kValueKeys =
      2 * kTile * static_cast<int>(kAttendDepth) /
      (kColumnGroup * (kColumnGroups == 2 ? 2 : 1));

  const AttentionArgs& args;
  const AttendMemory& memory;
  int64_t end;
  int64_t tile;     // of what is brought next: the first key,
  int column = 0;   // and the first column of queries and keys,
  int value = 0;    // or, if they are all there, the first value of the tile
  int filling = 0;  // the stage that it is brought to

  ATTENTION_KERNEL_CODE float* Stage(int number) const {
    return memory.stages + static_cast<int64_t>(number * kStage);
  }

  ATTENTION_KERNEL_CODE int KeysOfTile() const {
    return static_cast<int>(Least(kTile, args.key_length - tile));
  }

  /// Calls visit(), a template, with the rows' type.
  template <typename Visit>
  ATTENTION_KERNEL_CODE static void WithType(const Rows& rows,
                                             const Visit& visit) {
    if constexpr (kSide == 2) {
      visit(static_cast<const float*>(rows.data));
    } else {
      WithElements(rows.data, rows.type, visit);
    }
  }

  ATTENTION_KERNEL_CODE void BringScores(float* to) const {
    const AttendSource& source = *memory.source;
    WithType(args.query, [&]<typename T>(const T*) {
      BringDepth<kSide, T>(
          HeadRowsOf<false>(args.query, nullptr, source.query_begin), 0,
          static_cast<int>(source.query_count), column, to);
    });
    to += kTile * kAttendDepth;
    WithType(args.key, [&]<typename T>(const T*) {
      BringDepth<kSide, T>(
          HeadRowsOf<kPaged>(args.key, args.key_pages, source.key_begin), tile,
          KeysOfTile(), column, to);
    });
    if (kScore == Score::kAdditive && ThreadIndex() < kAttendDepth) {
      const int at = column + ThreadIndex();
      to[kTile * kAttendDepth + ThreadIndex()] =
          at < args.key.width ? source.term_weights[at] : 0.0F;
    }
  }

  ATTENTION_KERNEL_CODE void BringWeighted(float* to) const {
    const AttendSource& source = *memory.source;
    WithType(args.value, [&]<typename T>(const T*) {
      BringValues<kValueKeys, kColumnGroups, T>(
          HeadRowsOf<kPaged>(args.value, args.value_pages, source.value_begin),
          tile + value, KeysOfTile() - value,
          static_cast<int>(source.strip * kAttendValues), to);
    });
  }

  /// Begins to bring what comes next.
  ATTENTION_KERNEL_CODE void Bring() {
    if (tile < end) {
      if (column < args.key.width) {
        BringScores(Stage(filling));
        column += kAttendDepth;
      } else if constexpr (kColumnGroups > 0) {
        BringWeighted(Stage(filling));
        value += kValueKeys;
        if (value >= KeysOfTile()) {
          tile += kTile;
          column = value = 0;
        }
      }
    }
    CommitCopies();
  }

  /// What was brought last, once it is there for the whole block, which then
  /// no longer reads the stage before it: that one is filled.
  ATTENTION_KERNEL_CODE const float* Next() {
    WaitForCopies<0>();
    SyncBlock();
    const float* const there = Stage(filling);
    filling ^= 1;
    Bring();
    return there;
  }
};

/// For keys from `first`, a tile's, up to `end`. The block.
template <Score kScore, int kColumnGroups, int kSide, bool kPaged>
ATTENTION_KERNEL_CODE Stages<kScore, kColumnGroups, kSide, kPaged> BeginStages(
    const AttentionArgs& args, const AttendMemory& memory, int64_t first,
    int64_t end) {
  Stages<kScore, kColumnGroups, kSide, kPaged> stages = {args, memory, end,
                                                         first};
  stages.Bring();
  return stages;
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_STAGES_INL_H_
