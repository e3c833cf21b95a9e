#ifndef ATTENTION_CORE_CUDA_KERNELS_MMA_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_MMA_INL_H_

// The fused kernel on tensor cores, after Dao, "FlashAttention-2" (2023): each
// warp has rows of its own, whose scores stay in registers, where the result of
// one product is the operand of the next. Instance is a dispatch-inl.h's
// MmaInstance.

#include "core/cuda/kernels/attend-inl.h"
#include "core/cuda/kernels/dispatch-inl.h"

namespace attention::cuda {

/// Rows of 16-bit numbers in shared memory. Pieces of 16 bytes change places
/// within their row so that eight rows' pieces of one column, which ldmatrix
/// reads at once, lie in different banks.
template <int kWidth>
struct MmaTile {
  uint16_t* data;

  ATTENTION_KERNEL_CODE uint16_t* Piece(int row, int piece) const {
    const int at = row * kWidth + ((piece ^ (row & 7)) << 3);
    return data + at;
  }
};

template <typename Instance>
struct MmaMemory {
  MmaTile<Instance::kWidth> queries;  // 64 kTiles rows
  MmaTile<Instance::kWidth> keys;     // kKeys rows
  MmaTile<Instance::kWidth> values;   // likewise
  RowInfo* rows;
};

template <typename Instance>
inline constexpr int kMmaRowsOf = 64 * Instance::kTiles;

template <typename Instance>
ATTENTION_KERNEL_CODE MmaMemory<Instance> MakeMmaMemory() {
  constexpr int kWidth = Instance::kWidth;
  constexpr int kRows = kMmaRowsOf<Instance>;
  MmaMemory<Instance> memory;
  memory.queries.data = reinterpret_cast<uint16_t*>(SharedMemory());
  memory.keys.data = memory.queries.data + kRows * kWidth;
  memory.values.data = memory.keys.data + Instance::kKeys * kWidth;
  memory.rows =
      reinterpret_cast<RowInfo*>(memory.values.data + Instance::kKeys * kWidth);
  return memory;
}

/// Eight numbers as they are copied.
struct alignas(16) MmaPiece {
  uint16_t at[8];
};

/// Starts to bring `count` of kRows rows of `width` columns, from element
/// `begin` of `data` on; 0 elsewhere. Rows that are not whole pieces are
/// brought at once.
template <int kWidth, int kRows>
ATTENTION_KERNEL_CODE void StartRows(const void* data, int64_t begin,
                                     int64_t count, int width,
                                     const MmaTile<kWidth>& to) {
  constexpr int kPieces = kWidth / 8;
  constexpr int kStep = kMmaThreads / kPieces;  // rows at a time
  const auto* const from = static_cast<const uint16_t*>(data) + begin;
  const int piece = ThreadIndex() % kPieces;
  const int column = piece * 8;
  const bool whole = width % 8 == 0;
  ATTENTION_UNROLL(4)
  for (int row = ThreadIndex() / kPieces; row < kRows; row += kStep) {
    const bool there = row < count && column < width;
    // An address that is not read has to be one all the same.
    const uint16_t* const at = there ? from + int64_t{row} * width + column
                                     : static_cast<const uint16_t*>(data);
    if (whole) {
      CopyAsync16(to.Piece(row, piece), at, there);
      continue;
    }
    MmaPiece numbers = {};
    for (int i = 0; there && i < 8 && column + i < width; ++i) {
      numbers.at[i] = at[i];
    }
    *reinterpret_cast<MmaPiece*>(to.Piece(row, piece)) = numbers;
  }
}

/// Negates what this thread has brought.
template <int kWidth, int kRows>
ATTENTION_KERNEL_CODE void NegateRows(const MmaTile<kWidth>& tile) {
  constexpr int kPieces = kWidth / 8;
  for (int row = ThreadIndex() / kPieces; row < kRows;
       row += kMmaThreads / kPieces) {
    auto* const piece =
        reinterpret_cast<MmaPiece*>(tile.Piece(row, ThreadIndex() % kPieces));
    for (uint16_t& number : piece->at) number ^= 0x8000U;
  }
}

// Of a tile of 16 rows a thread has rows lane / 4 and lane / 4 + 8, and of each
// 8 columns two: 2 (lane % 4) and the next.
template <int kColumnTiles>
using MmaSums = float[kColumnTiles][4];

ATTENTION_KERNEL_CODE int LaneIndex() { return ThreadIndex() % kWarp; }
/// Row of the block's, of a thread's row `half` (0 or 1) of a tile.
template <typename Instance>
ATTENTION_KERNEL_CODE int MmaRow(int tile, int half) {
  return (ThreadIndex() / kWarp * Instance::kTiles + tile) * 16 +
         LaneIndex() / 4 + 8 * half;
}
ATTENTION_KERNEL_CODE int MmaColumn() { return LaneIndex() % 4 * 2; }

/// scores += queries keys^T for the warp's rows and a tile of keys.
template <typename Instance>
ATTENTION_KERNEL_CODE void MultiplyKeys(
    const MmaMemory<Instance>& memory,
    MmaSums<Instance::kKeys / 8> (&scores)[Instance::kTiles]) {
  constexpr int kTiles = Instance::kTiles;
  const int lane = Opaque(LaneIndex());  // addresses are cheap, registers not
  const int first_row = ThreadIndex() / kWarp * kTiles * 16;
  ATTENTION_UNROLL_ALL
  for (int depth = 0; depth < Instance::kWidth / 16; ++depth) {
    uint32_t q[kTiles][4];
    ATTENTION_UNROLL_ALL
    for (int tile = 0; tile < kTiles; ++tile) {
      LoadMatrices(q[tile],
                   memory.queries.Piece(first_row + tile * 16 + lane % 16,
                                        depth * 2 + lane / 16));
    }
    ATTENTION_UNROLL_ALL
    for (int n = 0; n < Instance::kKeys / 8; n += 2) {
      uint32_t k[4];
      LoadMatrices(k, memory.keys.Piece(n * 8 + lane / 16 * 8 + lane % 8,
                                        depth * 2 + lane / 8 % 2));
      ATTENTION_UNROLL_ALL
      for (int tile = 0; tile < kTiles; ++tile) {
        MultiplyAdd<typename Instance::T>(scores[tile][n], q[tile], k[0], k[1]);
        MultiplyAdd<typename Instance::T>(scores[tile][n + 1], q[tile], k[2],
                                          k[3]);
      }
    }
  }
}

/// sums += weights values, the weights rounded to the values' type.
template <typename Instance>
ATTENTION_KERNEL_CODE void MultiplyValues(
    const MmaMemory<Instance>& memory,
    const MmaSums<Instance::kKeys / 8> (&weights)[Instance::kTiles],
    MmaSums<Instance::kWidth / 8> (&sums)[Instance::kTiles]) {
  using T = typename Instance::T;
  constexpr int kTiles = Instance::kTiles;
  const int lane = Opaque(LaneIndex());  // addresses are cheap, registers not
  ATTENTION_UNROLL_ALL
  for (int depth = 0; depth < Instance::kKeys / 16; ++depth) {
    uint32_t p[kTiles][4];
    ATTENTION_UNROLL_ALL
    for (int tile = 0; tile < kTiles; ++tile) {
      ATTENTION_UNROLL_ALL
      for (int half = 0; half < 2; ++half) {
        const float(&w)[4] = weights[tile][2 * depth + half];
        p[tile][2 * half] = Pair<T>(w[0], w[1]);
        p[tile][2 * half + 1] = Pair<T>(w[2], w[3]);
      }
    }
    ATTENTION_UNROLL_ALL
    for (int n = 0; n < Instance::kWidth / 8; n += 2) {
      uint32_t v[4];
      LoadMatricesTransposed(
          v, memory.values.Piece(depth * 16 + lane % 16, n + lane / 16));
      ATTENTION_UNROLL_ALL
      for (int tile = 0; tile < kTiles; ++tile) {
        MultiplyAdd<T>(sums[tile][n], p[tile], v[0], v[1]);
        MultiplyAdd<T>(sums[tile][n + 1], p[tile], v[2], v[3]);
      }
    }
  }
}

/// FP16 weights are taken so many times as large. Not by a larger exponent: the
/// argument of the exponential, which is near 0 for the keys that count, would
/// lose bits to it.
template <typename T>
inline constexpr float kWeightScale = 1;
template <>
inline constexpr float kWeightScale<Half> = kHalfProbability;

/// The largest of the 4 threads of a row.
ATTENTION_KERNEL_CODE float LargestOfMmaRow(float value) {
  value = Larger(value, ShuffleXor(value, 1));
  return Larger(value, ShuffleXor(value, 2));
}

/// What one thread knows of its rows: sums and magnitudes of its own keys.
template <typename Instance>
struct MmaState {
  RowState rows[Instance::kTiles][2];
};

/// Keys of a tile that lie outside a row's become -inf.
template <typename Instance>
ATTENTION_KERNEL_CODE void LimitRow(const RowInfo& row, int64_t first_key,
                                    int half,
                                    MmaSums<Instance::kKeys / 8>& scores) {
  const auto within = [first_key](int64_t key) {
    const int64_t at = Most(key - first_key, 0);
    return static_cast<int>(Least(at, Instance::kKeys)) - MmaColumn();
  };
  const int begin = within(row.begin);
  const int end = within(row.end);
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kKeys / 8; ++n) {
    for (int i = 0; i < 2; ++i) {
      const int key = n * 8 + i;
      float& score = scores[n][2 * half + i];
      score = key >= begin && key < end ? score : -Infinity();
    }
  }
}

/// Everything that is not plain: scores are finished one by one, and dropped
/// keys are remembered as a bit each.
template <typename Instance>
ATTENTION_KERNEL_CODE uint32_t
FinishMmaRow(const AttentionArgs& args, const Epilogue& epilogue,
             const RowInfo& row, int64_t first_key, int half,
             MmaSums<Instance::kKeys / 8>& scores, float& magnitude) {
  const int64_t mask =
      RowOffset(args.attend_mask, row.batch, row.head, row.query);
  const int64_t bias = RowOffset(args.bias, row.batch, row.head, row.query);
  uint32_t dropped = 0;
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kKeys / 8; ++n) {
    const int column = n * 8 + MmaColumn();
    const int64_t key = first_key + column;
    PhiloxWords words = {};
    if (args.dropout.active != 0) {
      words = DropoutWords(args.dropout, row.batch, row.head, row.query, key);
    }
    ATTENTION_UNROLL_ALL
    for (int i = 0; i < 2; ++i) {
      float& score = scores[n][2 * half + i];
      if (key + i < row.begin || key + i >= row.end) {
        score = -Infinity();
        continue;
      }
      score =
          FinishScore(args, epilogue, mask, bias, key + i, score, magnitude);
      const uint32_t word =
          MmaColumn() % 4 == 0 ? words.word[i] : words.word[2 + i];
      const bool drops =
          args.dropout.active != 0 && word < args.dropout.threshold;
      dropped |= drops ? 1U << (2 * n + i) : 0U;
    }
  }
  return dropped;
}

/// Makes weights of one row's scores (not yet multiplied by `factor`), and
/// brings its sums to the new maximum.
template <typename Instance>
ATTENTION_KERNEL_CODE void AddMmaRow(float factor, int half, RowState& row,
                                     MmaSums<Instance::kKeys / 8>& scores,
                                     MmaSums<Instance::kWidth / 8>& sums) {
  constexpr float kScale = kWeightScale<typename Instance::T>;
  float largest = -Infinity();
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kKeys / 8; ++n) {
    largest =
        Larger(largest, Larger(scores[n][2 * half], scores[n][2 * half + 1]));
  }
  const float max = Larger(row.max, LargestOfMmaRow(largest) * factor);
  const float base = Base(max);
  const float scale = FastExp2(row.max - base);
  float sum = 0;
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kKeys / 8; ++n) {
    ATTENTION_UNROLL_ALL
    for (int i = 0; i < 2; ++i) {
      float& score = scores[n][2 * half + i];
      score = kScale * FastExp2(Fma(score, factor, -base));
      sum += score;
    }
  }
  row.max = max;
  row.sum = Fma(row.sum, scale, sum);
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kWidth / 8; ++n) {
    sums[n][2 * half] *= scale;
    sums[n][2 * half + 1] *= scale;
  }
}

/// Where products of BF16 numbers overflow to -inf, their keys look as if they
/// took no part: the row has to be marked.
template <typename Instance>
ATTENTION_KERNEL_CODE void NoteOverflow(
    const MmaSums<Instance::kKeys / 8>& scores, int half, float& magnitude) {
  if constexpr (sizeof(typename Instance::T) == sizeof(Brain) &&
                kWeightScale<typename Instance::T> == 1) {
    float size = 0;
    ATTENTION_UNROLL_ALL
    for (int n = 0; n < Instance::kKeys / 8; ++n) {
      size = Larger(size, fabsf(scores[n][2 * half]));
      size = Larger(size, fabsf(scores[n][2 * half + 1]));
    }
    if (size == Infinity()) magnitude = size;
  }
}

template <typename Instance>
struct MmaRegisters {
  MmaState<Instance> state;
  MmaSums<Instance::kWidth / 8> sums[Instance::kTiles];
};

/// From a tile's products to weights; `inside` says that every row reads all of
/// its keys.
template <typename Instance>
ATTENTION_KERNEL_CODE void AddMmaTile(
    const AttentionArgs& args, const Epilogue& epilogue, const RowInfo* rows,
    bool inside, int64_t first_key,
    MmaSums<Instance::kKeys / 8> (&scores)[Instance::kTiles],
    MmaRegisters<Instance>& registers) {
  ATTENTION_UNROLL_ALL
  for (int tile = 0; tile < Instance::kTiles; ++tile) {
    ATTENTION_UNROLL_ALL
    for (int half = 0; half < 2; ++half) {
      RowState& state = registers.state.rows[tile][half];
      const RowInfo& row = rows[Opaque(MmaRow<Instance>(tile, half))];
      if constexpr (Instance::kPlain) {
        NoteOverflow<Instance>(scores[tile], half, state.magnitude);
        if (!inside) LimitRow<Instance>(row, first_key, half, scores[tile]);
        AddMmaRow<Instance>(epilogue.factor, half, state, scores[tile],
                            registers.sums[tile]);
      } else {
        const uint32_t dropped =
            FinishMmaRow<Instance>(args, epilogue, row, first_key, half,
                                   scores[tile], state.magnitude);
        AddMmaRow<Instance>(1.0F, half, state, scores[tile],
                            registers.sums[tile]);
        ATTENTION_UNROLL_ALL
        for (int n = 0; n < 2 * (Instance::kKeys / 8); ++n) {
          float& weight = scores[tile][n / 2][2 * half + n % 2];
          weight = (dropped >> n & 1U) != 0 ? 0.0F : weight;
        }
      }
    }
  }
}

/// Stores two columns side by side.
template <typename T>
ATTENTION_KERNEL_CODE void StoreColumns(const AttentionArgs& args,
                                        int64_t result_row, int column,
                                        float low, float high) {
  const int64_t at = result_row * args.value.width + column;
  auto* const to = static_cast<T*>(args.output) + at;
  if (args.value.width % 2 == 0) {
    *reinterpret_cast<uint32_t*>(to) = Pair<T>(low, high);
    return;
  }
  to[0] = Round<T>(low);
  if (column + 1 < args.value.width) to[1] = Round<T>(high);
}

template <typename Instance>
ATTENTION_KERNEL_CODE void StoreMmaPartial(
    const AttentionArgs& args, int64_t split, int64_t result_row, int half,
    const RowState& state, const MmaSums<Instance::kWidth / 8>& sums) {
  float* const partial = PartialOf(args, split, result_row);
  if (MmaColumn() == 0) StorePartialState(state, partial);
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kWidth / 8; ++n) {
    for (int i = 0; i < 2; ++i) {
      const int column = n * 8 + MmaColumn() + i;
      if (column < args.value.width) {
        partial[4 + column] = sums[n][2 * half + i];
      }
    }
  }
}

template <typename Instance>
ATTENTION_KERNEL_CODE void StoreMmaRow(
    const AttentionArgs& args, int64_t result_row, int half,
    const RowState& state, const MmaSums<Instance::kWidth / 8>& sums) {
  const float normalizer = Normalizer(args, state.sum);
  bool finite = true;
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kWidth / 8; ++n) {
    const int column = n * 8 + MmaColumn();
    if (column >= args.value.width) continue;
    float low = sums[n][2 * half] * normalizer;
    float high = sums[n][2 * half + 1] * normalizer;
    if (state.sum == 0) low = high = 0;
    finite = finite && IsFinite(low) && IsFinite(high);
    StoreColumns<typename Instance::T>(args, result_row, column, low, high);
  }
  if (!finite) MarkNotFinite(args, state, result_row);
  if (MmaColumn() == 0) StoreRowState(args, state, result_row);
}

template <typename Instance>
ATTENTION_KERNEL_CODE void StoreMmaRows(const AttentionArgs& args,
                                        int64_t split, const RowInfo* rows,
                                        MmaRegisters<Instance>& registers) {
  constexpr float kUnit = 1 / kWeightScale<typename Instance::T>;
  ATTENTION_UNROLL_ALL
  for (int tile = 0; tile < Instance::kTiles; ++tile) {
    ATTENTION_UNROLL_ALL
    for (int half = 0; half < 2; ++half) {
      RowState state = registers.state.rows[tile][half];
      state.sum += ShuffleXor(state.sum, 1);
      state.sum += ShuffleXor(state.sum, 2);
      state.sum *= kUnit;
      state.magnitude = LargestOfMmaRow(state.magnitude);
      ATTENTION_UNROLL_ALL
      for (int n = 0; n < Instance::kWidth / 8; ++n) {
        registers.sums[tile][n][2 * half] *= kUnit;
        registers.sums[tile][n][2 * half + 1] *= kUnit;
      }
      const RowInfo& row = rows[MmaRow<Instance>(tile, half)];
      if (row.query < 0) continue;
      const int64_t result_row = ResultRow(args, row);
      if (args.splits > 1) {
        StoreMmaPartial<Instance>(args, split, result_row, half, state,
                                  registers.sums[tile]);
      } else {
        StoreMmaRow<Instance>(args, result_row, half, state,
                              registers.sums[tile]);
      }
    }
  }
}

/// What a block reads: elements where its keys and values begin, and tiles of
/// keys. As little as can be, for it stays in registers.
struct MmaSource {
  int64_t key_begin;  // of the first tile
  int64_t value_begin;
  int64_t first_key;
  int32_t tiles;
  // Tiles of which every row reads every key.
  int32_t inside_begin;
  int32_t inside_end;
};

template <typename Instance>
ATTENTION_KERNEL_CODE MmaSource MakeMmaSource(const AttentionArgs& args,
                                              const Lane& lane,
                                              const RowTile& rows) {
  constexpr int64_t kKeys = Instance::kKeys;
  MmaSource source;
  source.first_key = rows.any.begin / kKeys * kKeys;
  source.key_begin = RowsBegin(args, args.key, lane.batch, lane.first_head) +
                     source.first_key * args.key.width;
  source.value_begin =
      RowsBegin(args, args.value, lane.batch, lane.first_head) +
      source.first_key * args.value.width;
  const int64_t keys = Most(rows.any.end - source.first_key, 0);
  source.tiles = static_cast<int32_t>(CeilDivide(keys, kKeys));
  source.inside_begin = static_cast<int32_t>(
      CeilDivide(Most(rows.every.begin - source.first_key, 0), kKeys));
  source.inside_end =
      static_cast<int32_t>(Most(rows.every.end - source.first_key, 0) / kKeys);
  return source;
}

/// Starts to bring a tile of `rows`, keys or values, of which the block's first
/// begins at element `begin`.
template <typename Instance>
ATTENTION_KERNEL_CODE void StartTile(const AttentionArgs& args,
                                     const MmaSource& source, const Rows& rows,
                                     int64_t begin, int tile,
                                     const MmaTile<Instance::kWidth>& to) {
  const int64_t first = int64_t{tile} * Instance::kKeys;
  StartRows<Instance::kWidth, Instance::kKeys>(
      rows.data, begin + first * rows.width,
      args.key_length - source.first_key - first, rows.width, to);
  CommitCopies();
}

template <typename Instance>
ATTENTION_KERNEL_CODE void StartKeys(const AttentionArgs& args,
                                     const MmaSource& source, int tile,
                                     const MmaMemory<Instance>& memory) {
  StartTile<Instance>(args, source, args.key, source.key_begin, tile,
                      memory.keys);
}

template <typename Instance>
ATTENTION_KERNEL_CODE void StartValues(const AttentionArgs& args,
                                       const MmaSource& source, int tile,
                                       const MmaMemory<Instance>& memory) {
  StartTile<Instance>(args, source, args.value, source.value_begin, tile,
                      memory.values);
}

/// Queries on their way; those of a negative factor are negated, so that the
/// largest product has the largest score.
template <typename Instance>
ATTENTION_KERNEL_CODE void StartQueries(const AttentionArgs& args,
                                        const Lane& lane, const RowTile& rows,
                                        const MmaMemory<Instance>& memory) {
  constexpr int kRows = kMmaRowsOf<Instance>;
  StartRows<Instance::kWidth, kRows>(
      args.query.data,
      (lane.first_result_row + rows.first) * int64_t{args.query.width},
      rows.count, args.query.width, memory.queries);
  CommitCopies();
  if (args.factor >= 0) return;
  WaitForCopies<0>();
  NegateRows<Instance::kWidth, kRows>(memory.queries);
}

template <typename Instance>
ATTENTION_KERNEL_CODE void AttendMma(const AttentionArgs& args, int64_t block) {
  constexpr int kRows = kMmaRowsOf<Instance>;
  const MmaMemory<Instance> memory = MakeMmaMemory<Instance>();
  const AttendPlace place = MakeAttendPlace(args, block, kRows, 1);
  const RowTile rows = MakeRowTile<kRows>(args, place.lane, place.first_row,
                                          place.keys, memory.rows);
  const MmaSource source = MakeMmaSource<Instance>(args, place.lane, rows);
  if (source.tiles > 0) {  // else nobody would wait for the copies
    StartQueries<Instance>(args, place.lane, rows, memory);
    StartKeys<Instance>(args, source, 0, memory);
  }
  Epilogue epilogue = MakeEpilogue<Score::kDot>(args);
  epilogue.factor = fabsf(epilogue.factor);
  MmaRegisters<Instance> registers = {};
  ATTENTION_UNROLL_ALL
  for (auto& tile : registers.state.rows) {
    for (RowState& row : tile) row = {-Infinity(), 0.0F, 0.0F};
  }
  for (int tile = 0; tile < source.tiles; ++tile) {
    WaitForCopies<0>();
    SyncBlock();  // the keys are there, and everyone is done with the values
    StartValues<Instance>(args, source, tile, memory);
    MmaSums<Instance::kKeys / 8> scores[Instance::kTiles] = {};
    MultiplyKeys<Instance>(memory, scores);
    WaitForCopies<0>();
    SyncBlock();  // the values are there, and everyone is done with the keys
    if (tile + 1 < source.tiles) {
      StartKeys<Instance>(args, source, tile + 1, memory);
    }
    const bool inside = tile >= source.inside_begin && tile < source.inside_end;
    AddMmaTile<Instance>(args, epilogue, memory.rows, inside,
                         source.first_key + int64_t{tile} * Instance::kKeys,
                         scores, registers);
    MultiplyValues<Instance>(memory, scores, registers.sums);
  }
  StoreMmaRows<Instance>(args, block % args.splits, memory.rows, registers);
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_MMA_INL_H_
