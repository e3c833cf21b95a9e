#ifndef ATTENTION_CORE_CUDA_KERNELS_TILE_MEMORY_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_TILE_MEMORY_INL_H_

// Shared memory of `attend`, `recompute` and `weights`: what lies where in it,
// and which rows and keys of a tile are whose.

#include "core/cuda/kernels/rows-inl.h"

namespace attention::cuda {

/// A block's shared memory.
struct AttendMemory {
  float* stages;   // [2][AttendStage()]
  float* weights;  // [kAttendKeys][AttendPitch()], by SpreadRow() of the key
  RowInfo* rows;
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

template <int kSide>
ATTENTION_KERNEL_CODE AttendMemory MakeAttendMemory() {
  AttendMemory memory;
  memory.stages = reinterpret_cast<float*>(SharedMemory());
  memory.weights = memory.stages + 2 * AttendStage(kSide);
  memory.rows = reinterpret_cast<RowInfo*>(memory.weights +
                                           kAttendKeys * AttendPitch(kSide));
  memory.source =
      reinterpret_cast<AttendSource*>(memory.rows + kSide * kAttendRows);
  return memory;
}

/// Numbers that are brought, stored and loaded at once.
inline constexpr int kQuad = 4;
/// Four floats at once; 16-byte aligned.
struct alignas(16) Float4 {
  float at[kQuad];
};
ATTENTION_KERNEL_CODE Float4 LoadFloat4(const float* from) {
  return *reinterpret_cast<const Float4*>(from);
}
ATTENTION_KERNEL_CODE void StoreFloat4(float* to, const Float4& value) {
  *reinterpret_cast<Float4*>(to) = value;
}

/// Thread t has rows 4 (t / 16) ... and keys 4 (t % 16) ... of each 64 of a
/// tile: number n of a thread's is so far from its first one.
ATTENTION_KERNEL_CODE int TileIndex(int n) { return n / 4 * 64 + n % 4; }
/// The thread's row, or key, number n of the tile. The 16 threads of a row are
/// half a warp.
ATTENTION_KERNEL_CODE int TileRow(int n) {
  return ThreadIndex() / 16 * 4 + TileIndex(n);
}
ATTENTION_KERNEL_CODE int TileKey(int n) {
  return ThreadIndex() % 16 * 4 + TileIndex(n);
}

/// Which place in shared memory a tile's row has: threads side by side read
/// rows that lie side by side.
ATTENTION_KERNEL_CODE int SpreadRow(int row) {
  return row / 64 * 64 + row % 4 * 16 + row / 4 % 16;
}
ATTENTION_KERNEL_CODE int RowOfPlace(int place) {
  return place / 64 * 64 + place % 16 * 4 + place / 16 % 4;
}
/// Columns 4 quad ... of a depth of the row at `place`. A row is half of all
/// banks long: eight rows at one quad, which a fourth of a warp loads, are in
/// all of them, and so are the quads of two rows, which it stores.
ATTENTION_KERNEL_CODE int QuadAt(int place, int quad) {
  return (place * static_cast<int>(kAttendDepth) + place / 2 % 4 * kQuad) ^
         (quad * kQuad);
}
static_assert(kAttendDepth == 16);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_TILE_MEMORY_INL_H_
