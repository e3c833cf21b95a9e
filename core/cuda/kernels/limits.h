#ifndef ATTENTION_CORE_CUDA_KERNELS_LIMITS_H_
#define ATTENTION_CORE_CUDA_KERNELS_LIMITS_H_

#include <cstdint>

#include "core/cuda/kernels/arguments.h"

/// How kernels cut their work: what a planner needs to launch them.
namespace attention::cuda {

/// A grid of `blocks` along x, below 2^31.
struct LaunchShape {
  int64_t blocks = 0;
  int32_t threads = 0;
  int32_t shared_bytes = 0;  // dynamic shared memory
};

constexpr int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Rows of results: B Hq Lq.
constexpr int64_t ResultRows(const AttentionArgs& args) {
  return args.batch * args.query_heads * args.query_length;
}
/// Kv groups: heads_per_group query heads each, of all batch entries.
constexpr int64_t KvGroups(const AttentionArgs& args) {
  return args.batch * (args.query_heads / args.heads_per_group);
}
constexpr int64_t RowsPerGroup(const AttentionArgs& args) {
  return args.heads_per_group * args.query_length;
}

/// keys_per_split is a multiple of this.
inline constexpr int64_t kSplitUnit = 128;

/// Floats of partials of one row and split: maximum, sum, weighted values.
constexpr int64_t PartialStride(const AttentionArgs& args) {
  return 2 + args.value.width;
}
/// (splits, B, Hq, Lq, PartialStride).
constexpr int64_t PartialFloats(const AttentionArgs& args) {
  return args.splits * ResultRows(args) * PartialStride(args);
}

// attend, recompute and weights: FP32, any width. A block has a tile of rows of
// one kv group and a strip of the values' columns; wider values mean more
// strips, each of which computes the scores again. Tiles have `side` times so
// many rows and keys, of which a thread has 4 times `side` each.
inline constexpr int32_t kAttendThreads = 256;
inline constexpr int64_t kAttendRows = 64;
inline constexpr int64_t kAttendKeys = 64;
inline constexpr int64_t kAttendDepth = 16;    // of rows' width at a time
inline constexpr int64_t kAttendValues = 128;  // columns of a strip, at most

/// The widest rows: kernels count columns in 32 bits, and those of a strip that
/// lie behind the last one, too.
inline constexpr int64_t kMostWidth = (int64_t{1} << 31) - 2 * kAttendValues;

/// Floats that are brought to shared memory at a time: a depth of queries, keys
/// and term_weights, or rows of values.
constexpr int64_t AttendStage(int side) {
  return (side * (kAttendRows + kAttendKeys) + 1) * kAttendDepth;
}
/// Floats from one key's weights to the next one's: 4 against bank conflicts.
constexpr int64_t AttendPitch(int side) { return side * kAttendRows + 4; }

constexpr int64_t ValueStrips(const AttentionArgs& args) {
  return args.value.width <= kAttendValues
             ? 1
             : CeilDivide(args.value.width, kAttendValues);
}

/// Two stages, one of which is filled while the other is computed with; weights
/// of kAttendKeys; what is known of rows; what the block reads.
constexpr int64_t AttendSharedBytes(int side = 1) {
  return (2 * AttendStage(side) + kAttendKeys * AttendPitch(side)) * 4 +
         side * kAttendRows * 32 + 64;
}

/// Blocks of `attend` for whose threads and tiles a multiprocessor has
/// registers and shared memory: as many keep it busy.
constexpr int AttendBlocks(int side) { return 2 / side; }

/// The side of `attend`'s tiles, 1 or 2; `recompute` and `weights` have 1. With
/// 2, a load from shared memory is for twice as many multiply-adds, but few
/// rows would leave most of a tile empty. Other scores and types, which are
/// rarer, would be as many kernels again.
constexpr int AttendSide(const AttentionArgs& args) {
  return args.score == Score::kDot && args.query.type == Element::kFloat32 &&
                 args.key.type == Element::kFloat32 &&
                 args.value.type == Element::kFloat32 &&
                 RowsPerGroup(args) >= 2 * kAttendRows &&
                 AttendSharedBytes(2) <= args.most_shared_bytes
             ? 2
             : 1;
}

constexpr LaunchShape AttendShape(const AttentionArgs& args, int side) {
  return {KvGroups(args) * CeilDivide(RowsPerGroup(args), side * kAttendRows) *
              ValueStrips(args) * args.splits,
          kAttendThreads, static_cast<int32_t>(AttendSharedBytes(side))};
}
constexpr LaunchShape AttendShape(const AttentionArgs& args) {
  return AttendShape(args, AttendSide(args));
}

/// As attend's without splits.
constexpr LaunchShape RecomputeShape(AttentionArgs args) {
  args.splits = 1;
  return AttendShape(args, 1);
}

/// A block for every tile of rows and keys.
constexpr LaunchShape WeightsShape(const AttentionArgs& args) {
  return {KvGroups(args) * CeilDivide(RowsPerGroup(args), kAttendRows) *
              CeilDivide(args.key_length, kAttendKeys),
          kAttendThreads, static_cast<int32_t>(AttendSharedBytes())};
}

// attend_mma: FP16 and BF16 on tensor cores, from compute capability 8.0. Each
// of four warps has one or two tiles of 16 rows, or all four share one and have
// a fourth of each tile of keys.
inline constexpr int32_t kMmaThreads = 128;
inline constexpr int64_t kMmaSharedRows = 16;
inline constexpr int64_t kMmaLargestWidth = 256;

/// The class of widths that the kernel is compiled for: 64, 128 or 256.
constexpr int64_t MmaWidth(const AttentionArgs& args) {
  const int64_t width =
      args.key.width > args.value.width ? args.key.width : args.value.width;
  return width <= 64 ? 64 : width <= 128 ? 128 : 256;
}

/// The most rows of a block: of wider ones there are no registers for more.
constexpr int64_t MmaMostRows(int64_t width) { return width == 256 ? 64 : 128; }

/// Whether code for the options is there: where the problem has one, and in
/// blocks of few rows, for which the memory's speed decides.
constexpr bool MmaHasOptions(const AttentionArgs& args, int64_t rows) {
  return rows < MmaMostRows(MmaWidth(args)) || args.softcap != 0 ||
         args.bias.data != nullptr || args.attend_mask.data != nullptr ||
         args.alibi_slopes != nullptr || args.dropout.active != 0;
}

/// True for dot products of query, key and value of one 16-bit type, of widths
/// that rows in shared memory have room for. Not with a factor of 0: what that
/// makes of infinite products is NaN, and must not be taken for keys left out.
constexpr bool ServesMma(const AttentionArgs& args) {
  return args.score == Score::kDot && args.factor != 0 &&
         args.query.type != Element::kFloat32 &&
         args.key.type == args.query.type &&
         args.value.type == args.query.type &&
         args.key.width <= kMmaLargestWidth &&
         args.value.width <= kMmaLargestWidth;
}

/// Keys of a tile, such that two blocks fit into a multiprocessor's shared
/// memory.
constexpr int64_t MmaKeys(int64_t width, int64_t rows) {
  return (rows == kMmaSharedRows ? 128 : 64) / (width == 256 ? 2 : 1);
}

/// What a block of attend_mma reads, as its threads are shown it.
inline constexpr int64_t kMmaSourceBytes = 64;
/// What options need to know of a row.
inline constexpr int64_t kMmaRowOptionsBytes = 32;

/// Of a tile of mask and bias, one element for each row and key.
constexpr int64_t MmaElementBytes(const AttentionArgs& args) {
  return (args.attend_mask.data != nullptr ? 1 : 0) +
         (args.bias.data != nullptr ? ElementBytes(args.bias.type) : 0);
}

/// Queries, a tile each of keys and of values, in 16 bits; what is known of
/// rows and what the block reads; what the options need of rows, and a tile of
/// mask and bias. May be more than the 48 KiB that every device gives unasked
/// (the launch asks for it).
constexpr int64_t MmaSharedBytes(const AttentionArgs& args, int64_t rows) {
  const int64_t width = MmaWidth(args);
  const int64_t keys = MmaKeys(width, rows);
  return (rows + 2 * keys) * width * 2 + rows * 32 + kMmaSourceBytes +
         (MmaHasOptions(args, rows) ? rows * kMmaRowOptionsBytes : 0) +
         rows * keys * MmaElementBytes(args);
}

/// Rows of a block: with 128, two tiles of 16 for each warp, keys are read half
/// as often, where there are the rows and the memory for it.
constexpr int64_t MmaRows(const AttentionArgs& args) {
  if (RowsPerGroup(args) <= kMmaSharedRows) return kMmaSharedRows;
  const int64_t most = MmaMostRows(MmaWidth(args));
  return RowsPerGroup(args) > 64 &&
                 MmaSharedBytes(args, most) <= args.most_shared_bytes
             ? most
             : 64;
}

constexpr LaunchShape MmaShape(const AttentionArgs& args) {
  const int64_t rows = MmaRows(args);
  return {KvGroups(args) * CeilDivide(RowsPerGroup(args), rows) * args.splits,
          kMmaThreads, static_cast<int32_t>(MmaSharedBytes(args, rows))};
}

/// Of a block that computes one of several entries: with room for options.
constexpr int64_t MmaEntryBytes(const AttentionArgs& args) {
  const int64_t rows = MmaRows(args);
  return MmaSharedBytes(args, rows) +
         (MmaHasOptions(args, rows) ? 0 : rows * kMmaRowOptionsBytes);
}

// attend_wgmma: FP16 and BF16 with Hopper's own instructions. Two groups of
// four warps have 64 rows each; four more warps bring tiles of keys and values.
inline constexpr int32_t kWgmmaThreads = 384;
inline constexpr int64_t kWgmmaRows = 128;
inline constexpr int64_t kWgmmaKeys = 128;
inline constexpr int64_t kWgmmaLargestWidth = 128;
/// Queries, and five tiles of keys or values on their way.
inline constexpr int32_t kWgmmaSharedBytes =
    (kWgmmaRows + 5 * kWgmmaKeys) * kWgmmaLargestWidth * 2 + 1024;

/// True for what attend_mma serves too, where a head has the rows of a block,
/// and keys and values have one width, of which TMA brings whole 16 bytes. Of
/// options there are only ranges of keys, softcap and sinks.
constexpr bool ServesWgmma(const AttentionArgs& args) {
  constexpr int64_t kMostKeys = int64_t{1} << 31;  // TMA's coordinates
  return ServesMma(args) && args.factor > 0 &&
         args.key.width == args.value.width && args.key.width % 8 == 0 &&
         args.key.width <= kWgmmaLargestWidth &&
         args.query_length >= kWgmmaRows && args.query_length < kMostKeys &&
         args.key_length < kMostKeys;
}

constexpr LaunchShape WgmmaShape(const AttentionArgs& args) {
  return {
      args.batch * args.query_heads * CeilDivide(args.query_length, kWgmmaRows),
      kWgmmaThreads, kWgmmaSharedBytes};
}

// merge: a warp for every row.
inline constexpr int32_t kMergeThreads = 128;

constexpr LaunchShape MergeShape(const AttentionArgs& args) {
  return {CeilDivide(ResultRows(args), kMergeThreads / 32), kMergeThreads, 0};
}

// project: tiles of 32 rows and 32 columns.
inline constexpr int32_t kProjectThreads = 256;
inline constexpr int64_t kProjectTile = 32;

/// Two tiles, with a column against bank conflicts.
constexpr int64_t ProjectSharedBytes() {
  return 2 * kProjectTile * (kProjectTile + 1) * 4;
}

constexpr LaunchShape ProjectShape(const ProjectArgs& args) {
  return {args.batch * args.to_heads *
              CeilDivide(args.from.length, kProjectTile) *
              CeilDivide(args.to_width, kProjectTile),
          kProjectThreads, static_cast<int32_t>(ProjectSharedBytes())};
}

// softmax_rows: a block for every row.
inline constexpr int32_t kSoftmaxThreads = 128;

constexpr LaunchShape SoftmaxRowsShape(const SoftmaxRowsArgs& args) {
  return {args.rows, kSoftmaxThreads, kSoftmaxThreads * 4};
}

// finish_output: a warp for every row.
inline constexpr int32_t kFinishThreads = 128;

constexpr LaunchShape FinishOutputShape(const FinishOutputArgs& args) {
  return {CeilDivide(args.rows, kFinishThreads / 32), kFinishThreads, 0};
}

// rearrange: every thread of a block moves some units.
inline constexpr int32_t kRearrangeThreads = 256;
inline constexpr int64_t kRearrangeUnits = 8;  // of a thread

constexpr int64_t RearrangeCount(const RearrangeArgs& args) {
  int64_t units = 1;
  for (const int64_t extent : args.extents) units *= extent;
  return units;
}

constexpr LaunchShape RearrangeShape(const RearrangeArgs& args) {
  return {CeilDivide(RearrangeCount(args), kRearrangeThreads * kRearrangeUnits),
          kRearrangeThreads, 0};
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_LIMITS_H_
