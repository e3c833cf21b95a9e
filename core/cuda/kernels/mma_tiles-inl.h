#ifndef ATTENTION_CORE_CUDA_KERNELS_MMA_TILES_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_MMA_TILES_INL_H_

// What attend_mma has in shared memory and in registers, and the products of
// tensor cores between them. Instance is a dispatch-inl.h's MmaInstance.

#include "core/cuda/kernels/attend_softmax-inl.h"
#include "core/cuda/kernels/dispatch-inl.h"

namespace attention::cuda {

/// Rows of 16-bit numbers in shared memory. Chunks of 16 bytes change places
/// within their row so that eight rows' chunks of one column, which ldmatrix
/// reads at once, lie in different banks.
template <int kWidth>
struct MmaTile {
  uint16_t* data;

  ATTENTION_KERNEL_CODE uint16_t* Chunk(int row, int chunk) const {
    const int at = row * kWidth + ((chunk ^ (row & 7)) << 3);
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
struct alignas(16) MmaChunk {
  uint16_t at[8];
};

/// Starts to bring `count` of kRows rows of `width` columns, from element
/// `begin` of `data` on; 0 elsewhere. Rows that are not whole chunks are
/// brought at once.
template <int kWidth, int kRows>
ATTENTION_KERNEL_CODE void StartRows(const void* data, int64_t begin,
                                     int64_t count, int width,
                                     const MmaTile<kWidth>& to) {
  constexpr int kChunks = kWidth / 8;
  constexpr int kStep = kMmaThreads / kChunks;  // rows at a time
  const auto* const from = static_cast<const uint16_t*>(data) + begin;
  const int chunk = ThreadIndex() % kChunks;
  const int column = chunk * 8;
  const bool whole = width % 8 == 0;
  ATTENTION_UNROLL(4)
  for (int row = ThreadIndex() / kChunks; row < kRows; row += kStep) {
    const bool there = row < count && column < width;
    // An address that is not read has to be one all the same.
    const uint16_t* const at = there ? from + int64_t{row} * width + column
                                     : static_cast<const uint16_t*>(data);
    if (whole) {
      CopyAsync16(to.Chunk(row, chunk), at, there);
      continue;
    }
    MmaChunk numbers = {};
    for (int i = 0; there && i < 8 && column + i < width; ++i) {
      numbers.at[i] = at[i];
    }
    *reinterpret_cast<MmaChunk*>(to.Chunk(row, chunk)) = numbers;
  }
}

/// Negates what this thread has brought.
template <int kWidth, int kRows>
ATTENTION_KERNEL_CODE void NegateRows(const MmaTile<kWidth>& tile) {
  constexpr int kChunks = kWidth / 8;
  for (int row = ThreadIndex() / kChunks; row < kRows;
       row += kMmaThreads / kChunks) {
    auto* const chunk =
        reinterpret_cast<MmaChunk*>(tile.Chunk(row, ThreadIndex() % kChunks));
    for (uint16_t& number : chunk->at) number ^= 0x8000U;
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

/// QK: scores += queries keys^T for the warp's rows and a tile of keys.
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
                   memory.queries.Chunk(first_row + tile * 16 + lane % 16,
                                        depth * 2 + lane / 16));
    }
    ATTENTION_UNROLL_ALL
    for (int n = 0; n < Instance::kKeys / 8; n += 2) {
      uint32_t k[4];
      LoadMatrices(k, memory.keys.Chunk(n * 8 + lane / 16 * 8 + lane % 8,
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

/// PV: sums += weights values, the weights rounded to the values' type.
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
          v, memory.values.Chunk(depth * 16 + lane % 16, n + lane / 16));
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
