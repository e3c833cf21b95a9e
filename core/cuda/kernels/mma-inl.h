#ifndef ATTENTION_CORE_CUDA_KERNELS_MMA_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_MMA_INL_H_

// The fused kernel on tensor cores, after Dao, "FlashAttention-2" (2023): each
// warp has rows of its own, whose scores stay in registers, where the result of
// QK is the operand of PV. Instance is a dispatch-inl.h's MmaInstance.

#include "core/cuda/kernels/mma_store-inl.h"

namespace attention::cuda {

template <typename Instance>
ATTENTION_KERNEL_CODE MmaSource MakeMmaSource(const AttentionArgs& args,
                                              const KvGroup& kv_group,
                                              const RowTile& rows) {
  constexpr int64_t kKeys = Instance::kKeys;
  MmaSource source;
  source.first_key = rows.any.begin / kKeys * kKeys;
  source.key_begin =
      RowsBegin(args, args.key, kv_group.batch, kv_group.first_head);
  source.value_begin =
      RowsBegin(args, args.value, kv_group.batch, kv_group.first_head);
  if (!Instance::kPaged || args.key_pages == nullptr) {
    source.key_begin += source.first_key * args.key.width;
    source.value_begin += source.first_key * args.value.width;
  }
  const int64_t keys = Most(rows.any.end - source.first_key, 0);
  source.tiles = static_cast<int32_t>(CeilDivide(keys, kKeys));
  source.inside_begin = static_cast<int32_t>(
      CeilDivide(Most(rows.every.begin - source.first_key, 0), kKeys));
  source.inside_end =
      static_cast<int32_t>(Most(rows.every.end - source.first_key, 0) / kKeys);
  source.factor = ScoreFactor(args);
  source.cap = static_cast<float>(args.softcap);
  source.cap_steepness = CapSteepness(args.softcap);
  return source;
}

/// Starts to bring a tile of `rows`, keys or values, of which the block's first
/// begins at element `begin`, or a page's first.
template <typename Instance, typename Tile>
ATTENTION_KERNEL_CODE void StartTile(const AttentionArgs& args,
                                     const MmaSource& source, const Rows& rows,
                                     const void* const* pages, int64_t begin,
                                     int tile, const Tile& to) {
  constexpr int kWidth = Instance::kWidth;
  constexpr int kKeys = Instance::kKeys;
  const int64_t first = int64_t{tile} * kKeys;
  const int64_t count = args.key_length - source.first_key - first;
  const auto head = HeadRowsOf<Instance::kPaged>(
      rows, Instance::kPaged ? pages : nullptr, begin);
  if constexpr (Instance::kPaged) {
    if (pages != nullptr) {
      const int64_t key = source.first_key + first;
      const auto row_at = [&](int row) {
        return head.template At<uint16_t>(key + row);
      };
      if (head.page_rows % kKeys == 0) {
        StartRows<kWidth, kKeys>(row_at(0), count, rows.width, to);
      } else {
        StartSomeRows<kWidth, kKeys>(row_at, count, rows.width, to);
      }
      return;
    }
  }
  StartRows<kWidth, kKeys>(head.template At<uint16_t>(first), count, rows.width,
                           to);
}

template <typename Instance>
ATTENTION_KERNEL_CODE void StartKeys(const AttentionArgs& args,
                                     const MmaSource& source, int tile,
                                     const MmaMemory<Instance>& memory) {
  StartTile<Instance>(args, source, args.key, args.key_pages, source.key_begin,
                      tile, memory.keys);
  CommitCopies();
}

/// And mask and bias, which are needed when the values are there.
template <typename Instance>
ATTENTION_KERNEL_CODE void StartValues(const AttentionArgs& args,
                                       const MmaSource& source, int tile,
                                       const MmaMemory<Instance>& memory) {
  StartTile<Instance>(args, source, args.value, args.value_pages,
                      source.value_begin, tile, memory.values);
  if constexpr (Instance::kOptions) {
    StartMaskAndBias<Instance>(args, source, tile, memory);
  }
  CommitCopies();
}

/// Queries on their way; those of a negative factor are negated, so that the
/// largest sum has the largest score.
template <typename Instance>
ATTENTION_KERNEL_CODE void StartQueries(const AttentionArgs& args,
                                        const KvGroup& kv_group,
                                        const RowTile& rows,
                                        const MmaMemory<Instance>& memory) {
  constexpr int kRows = Instance::kRows;
  StartRows<Instance::kWidth, kRows>(
      static_cast<const uint16_t*>(args.query.data) +
          (kv_group.first_result_row + rows.first) * int64_t{args.query.width},
      rows.count, args.query.width, memory.queries);
  CommitCopies();
  if (args.factor >= 0) return;
  WaitForCopies<0>();
  NegateRows<Instance::kWidth, kRows>(memory.queries);
}

/// Shows the block what it reads, and starts to bring queries and first keys.
/// The number of tiles of keys.
template <typename Instance>
ATTENTION_KERNEL_CODE int StartFirstTiles(const AttentionArgs& args,
                                          const AttendPlace& place,
                                          const RowTile& rows,
                                          const MmaMemory<Instance>& memory) {
  const MmaSource source = MakeMmaSource<Instance>(args, place.kv_group, rows);
  if (ThreadIndex() == 0) *memory.source = source;
  if constexpr (Instance::kOptions) {
    FillRowOptions<Instance>(args, memory, source.first_key);
  }
  if (source.tiles > 0) {  // else nobody would wait for the copies
    StartQueries<Instance>(args, place.kv_group, rows, memory);
    StartKeys<Instance>(args, source, 0, memory);
  }
  return source.tiles;
}

template <typename Instance>
ATTENTION_KERNEL_CODE void AttendMma(const AttentionArgs& args, int64_t block) {
  constexpr int kRows = Instance::kRows;
  const MmaMemory<Instance> memory = MakeMmaMemory<Instance>();
  const AttendPlace place = MakeAttendPlace(args, block, kRows, 1);
  const RowTile rows = MakeRowTile<kRows>(args, place.kv_group, place.first_row,
                                          place.keys, memory.rows);
  const int tiles = StartFirstTiles<Instance>(args, place, rows, memory);
  const float factor = ExponentFactor(args);
  MmaRegisters<Instance> registers = {};
  ATTENTION_UNROLL_ALL
  for (auto& tile : registers.state.rows) {
    for (RowState& row : tile) row = {-Infinity(), 0.0F};
  }
  for (int tile = 0; tile < tiles; ++tile) {
    WaitForCopies<0>();
    SyncBlock();  // the keys are there, and everyone is done with the values
    StartValues<Instance>(args, *memory.source, tile, memory);
    MmaSums<Instance::kWarpKeys / 8> scores[Instance::kTiles] = {};
    MultiplyKeys<Instance>(memory, scores);
    WaitForCopies<0>();
    SyncBlock();  // the values are there, and everyone is done with the keys
    const MmaSource& source = *memory.source;
    if (tile + 1 < tiles) StartKeys<Instance>(args, source, tile + 1, memory);
    const bool inside = tile >= source.inside_begin && tile < source.inside_end;
    AddMmaTile<Instance>(args, memory, tile, inside, factor, scores, registers);
    MultiplyValues<Instance>(memory, scores, registers.sums);
  }
  FinishStates<Instance>(args, registers);
  if constexpr (Instance::kSharesRows) MergeWarps<Instance>(memory, registers);
  StoreMmaRows<Instance>(args, block % args.splits, memory.rows, registers);
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_MMA_INL_H_
