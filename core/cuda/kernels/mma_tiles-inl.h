#ifndef ATTENTION_CORE_CUDA_KERNELS_MMA_TILES_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_MMA_TILES_INL_H_

// What attend_mma has in shared memory and in registers, and the products of
// tensor cores between them. Instance is a dispatch-inl.h's MmaInstance.

#include "core/cuda/kernels/attend_softmax-inl.h"
#include "core/cuda/kernels/dispatch-inl.h"

namespace attention::cuda {

/// Rows of 16-bit numbers in shared memory. Chunks of 16 bytes change places
/// within their row so that eight rows' chunks of one column, which ldmatrix
/// reads at once, lie in different banks: rows r, r + 1 and the same kStretch,
/// 2 kStretch and 3 kStretch rows further on. With a kStretch of 2 these are
/// rows one after the other.
template <int kWidth, int kStretch>
struct MmaTile {
  uint16_t* data;

  ATTENTION_KERNEL_CODE static constexpr int Swizzle(int row) {
    const auto at = static_cast<unsigned>(row);
    return static_cast<int>(at / kStretch % 4 * 2 + at % 2);
  }
  ATTENTION_KERNEL_CODE uint16_t* Chunk(int row, int chunk) const {
    const int at = row * kWidth + ((chunk ^ Swizzle(row)) << 3);
    return data + at;
  }
};

/// What a block reads: elements where its keys and values begin, and tiles of
/// keys. In shared memory, for registers are scarce.
struct MmaSource {
  int64_t key_begin;  // of the first tile; of a page's rows, where there are
  int64_t value_begin;
  int64_t first_key;
  int32_t tiles;
  // Tiles of which every row reads every key.
  int32_t inside_begin;
  int32_t inside_end;
  // For options: what products are multiplied by to be scores, and the softcap.
  float factor;
  float cap;
  float cap_steepness;
};
static_assert(sizeof(MmaSource) <= kMmaSourceBytes);

/// What the options need of a row; in shared memory.
struct MmaRowOptions {
  int64_t mask;    // element of attend_mask.data of the block's first key
  int64_t bias;    // likewise
  float slope;     // of ALiBi
  float position;  // of the row, counted from the block's first key
};
static_assert(sizeof(MmaRowOptions) <= kMmaRowOptionsBytes);

template <typename Instance>
struct MmaMemory {
  MmaTile<Instance::kWidth, 2> queries;                     // kRows
  MmaTile<Instance::kWidth, Instance::kThreadKeys> keys;    // kKeys rows
  MmaTile<Instance::kWidth, Instance::kThreadKeys> values;  // likewise
  RowInfo* rows;
  MmaSource* source;
  MmaRowOptions* options;  // of rows
  std::byte* elements;     // of mask and bias, in the order of threads
};

template <typename Instance>
ATTENTION_KERNEL_CODE MmaMemory<Instance> MakeMmaMemory() {
  constexpr int kWidth = Instance::kWidth;
  constexpr int kRows = Instance::kRows;
  MmaMemory<Instance> memory;
  memory.queries.data = reinterpret_cast<uint16_t*>(SharedMemory());
  memory.keys.data = memory.queries.data + kRows * kWidth;
  memory.values.data = memory.keys.data + Instance::kKeys * kWidth;
  memory.rows =
      reinterpret_cast<RowInfo*>(memory.values.data + Instance::kKeys * kWidth);
  memory.source = reinterpret_cast<MmaSource*>(memory.rows + kRows);
  auto* const after =
      reinterpret_cast<std::byte*>(memory.source) + kMmaSourceBytes;
  memory.options = reinterpret_cast<MmaRowOptions*>(after);
  memory.elements = after + kRows * kMmaRowOptionsBytes;
  return memory;
}

/// Eight numbers as they are copied.
struct alignas(16) MmaChunk {
  uint16_t at[8];
};

/// The place `rows` rows below another, whose swizzle is the same, and `chunks`
/// chunks further on; `place` is that of chunk 0 or 1 and `chunks` even, so
/// that nothing is carried.
template <int kWidth>
ATTENTION_KERNEL_CODE SharedPlace Moved(SharedPlace place, int rows,
                                        int chunks) {
  constexpr unsigned kSwizzled = 8 * 16;  // bytes in which chunks change places
  const unsigned bytes = static_cast<unsigned>(chunks) * 16;
  const unsigned whole = bytes / kSwizzled * kSwizzled;
  return (place ^ bytes % kSwizzled) + whole +
         static_cast<unsigned>(rows * kWidth * 2);
}

/// As StartRows(), where rows end before the tile or are not of its width, or
/// do not lie one behind the other: from(row) is where one begins.
template <int kWidth, int kRows, typename From, typename Tile>
ATTENTION_KERNEL_CODE void StartSomeRows(const From& from, int64_t count,
                                         int width, const Tile& to) {
  constexpr int kChunks = kWidth / 8;
  const int chunk = ThreadIndex() % kChunks;
  const int column = chunk * 8;
  int row = ThreadIndex() / kChunks;
  if (width % 8 == 0) {
    ATTENTION_UNROLL(2)
    for (; row < kRows; row += kMmaThreads / kChunks) {
      const bool there = row < count && column < width;
      // An address that is not read has to be one all the same.
      CopyAsync<16>(to.Chunk(row, chunk), there ? from(row) + column : from(0),
                    there);
    }
    return;
  }
  ATTENTION_UNROLL(1)
  for (; row < kRows; row += kMmaThreads / kChunks) {
    MmaChunk numbers = {};
    const uint16_t* const at = from(row < count ? row : 0) + column;
    for (int i = 0; row < count && i < 8 && column + i < width; ++i) {
      numbers.at[i] = at[i];
    }
    *reinterpret_cast<MmaChunk*>(to.Chunk(row, chunk)) = numbers;
  }
}

/// Starts to bring `count` of kRows rows of `width` columns, which lie one
/// behind the other; 0 elsewhere. Rows that are not whole chunks are brought at
/// once.
template <int kWidth, int kRows, typename Tile>
ATTENTION_KERNEL_CODE void StartRows(const uint16_t* from, int64_t count,
                                     int width, const Tile& to) {
  constexpr int kChunks = kWidth / 8;
  constexpr int kStep = kMmaThreads / kChunks;  // rows at a time: 4, 8 or 16
  if (count < kRows || width != kWidth) {
    StartSomeRows<kWidth, kRows>(
        [=](int row) { return from + int64_t{row} * width; }, count, width, to);
    return;
  }
  // Every address is the first one and a number that the compiler knows: `row`
  // and n have no bit in common, so that neither have their swizzles.
  const int row = ThreadIndex() / kChunks;
  const int chunk = ThreadIndex() % kChunks;
  const SharedPlace place = PlaceOf(to.Chunk(row, chunk));
  const int first = row * kWidth + chunk * 8;
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < kRows; n += kStep) {
    const int at = n * kWidth;
    CopyAsync16((place ^ static_cast<unsigned>(Tile::Swizzle(n) * 16)) +
                    static_cast<unsigned>(at * 2),
                from + first + at);
  }
}

/// Negates what this thread has brought.
template <int kWidth, int kRows, typename Tile>
ATTENTION_KERNEL_CODE void NegateRows(const Tile& tile) {
  constexpr int kChunks = kWidth / 8;
  for (int row = ThreadIndex() / kChunks; row < kRows;
       row += kMmaThreads / kChunks) {
    auto* const chunk =
        reinterpret_cast<MmaChunk*>(tile.Chunk(row, ThreadIndex() % kChunks));
    for (uint16_t& number : chunk->at) number ^= 0x8000U;
  }
}

// Of a tile of 16 rows a thread has rows lane / 4 and lane / 4 + 8, and of each
// 8 columns two: 2 (lane % 4) and the next. Which key a column of scores is, is
// ours to say: those of a thread are kThreadKeys keys side by side, two of each
// 8 columns.
template <int kColumnTiles>
using MmaSums = float[kColumnTiles][4];

ATTENTION_KERNEL_CODE int LaneIndex() { return ThreadIndex() % kWarp; }
ATTENTION_KERNEL_CODE int WarpIndex() { return ThreadIndex() / kWarp; }
/// The warp's first row of the block's.
template <typename Instance>
ATTENTION_KERNEL_CODE int WarpRow() {
  return Instance::kSharesRows ? 0 : WarpIndex() * Instance::kTiles * 16;
}
/// The warp's first key of a tile.
template <typename Instance>
ATTENTION_KERNEL_CODE int WarpKey() {
  return Instance::kSharesRows ? WarpIndex() * Instance::kWarpKeys : 0;
}
/// Row of the block's, of a thread's row `half` (0 or 1) of a tile.
template <typename Instance>
ATTENTION_KERNEL_CODE int MmaRow(int tile, int half) {
  return WarpRow<Instance>() + tile * 16 + LaneIndex() / 4 + 8 * half;
}
ATTENTION_KERNEL_CODE int MmaColumn() { return LaneIndex() % 4 * 2; }
/// The first of a thread's keys, and the key of column `column` of the warp's
/// first 8, within a tile; of the next 8 they lie two keys further on.
template <typename Instance>
ATTENTION_KERNEL_CODE int MmaKey() {
  return WarpKey<Instance>() + LaneIndex() % 4 * Instance::kThreadKeys;
}
template <typename Instance>
ATTENTION_KERNEL_CODE int MmaKeyOf(int column) {
  return WarpKey<Instance>() + column / 2 * Instance::kThreadKeys + column % 2;
}

/// QK: scores += queries keys^T for the warp's rows and a tile of keys.
template <typename Instance>
ATTENTION_KERNEL_CODE void MultiplyKeys(
    const MmaMemory<Instance>& memory,
    MmaSums<Instance::kWarpKeys / 8> (&scores)[Instance::kTiles]) {
  constexpr int kTiles = Instance::kTiles;
  constexpr int kWidth = Instance::kWidth;
  const int lane = LaneIndex();
  const SharedPlace queries =
      PlaceOf(memory.queries.Chunk(WarpRow<Instance>() + lane % 16, lane / 16));
  const SharedPlace keys = PlaceOf(memory.keys.Chunk(
      MmaKeyOf<Instance>(lane % 8) + lane / 16 * 2, lane / 8 % 2));
  ATTENTION_UNROLL_ALL
  for (int depth = 0; depth < kWidth / 16; ++depth) {
    uint32_t q[kTiles][4];
    ATTENTION_UNROLL_ALL
    for (int tile = 0; tile < kTiles; ++tile) {
      LoadMatrices(q[tile], Moved<kWidth>(queries, tile * 16, depth * 2));
    }
    ATTENTION_UNROLL_ALL
    for (int n = 0; n < Instance::kWarpKeys / 8; n += 2) {
      uint32_t k[4];
      LoadMatrices(k, Moved<kWidth>(keys, n * 2, depth * 2));
      ATTENTION_UNROLL_ALL
      for (int tile = 0; tile < kTiles; ++tile) {
        MultiplyAdd<typename Instance::T>(scores[tile][n], q[tile], k[0], k[1]);
        MultiplyAdd<typename Instance::T>(scores[tile][n + 1], q[tile], k[2],
                                          k[3]);
      }
    }
  }
}

/// PV: sums += weights values, the weights rounded to the values' type.
template <typename Instance>
ATTENTION_KERNEL_CODE void MultiplyValues(
    const MmaMemory<Instance>& memory,
    const MmaSums<Instance::kWarpKeys / 8> (&weights)[Instance::kTiles],
    MmaSums<Instance::kWidth / 8> (&sums)[Instance::kTiles]) {
  using T = typename Instance::T;
  constexpr int kTiles = Instance::kTiles;
  const int lane = LaneIndex();
  const SharedPlace values = PlaceOf(memory.values.Chunk(
      MmaKeyOf<Instance>(lane % 8) + lane / 8 % 2 * 2, lane / 16));
  ATTENTION_UNROLL_ALL
  for (int depth = 0; depth < Instance::kWarpKeys / 16; ++depth) {
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
      LoadMatricesTransposed(v, Moved<Instance::kWidth>(values, depth * 4, n));
      ATTENTION_UNROLL_ALL
      for (int tile = 0; tile < kTiles; ++tile) {
        MultiplyAdd<T>(sums[tile][n], p[tile], v[0], v[1]);
        MultiplyAdd<T>(sums[tile][n + 1], p[tile], v[2], v[3]);
      }
    }
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_MMA_TILES_INL_H_
