#ifndef ATTENTION_CORE_CUDA_KERNELS_WGMMA_STORE_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_WGMMA_STORE_INL_H_

// What attend_wgmma stores of its rows.

#include <cute/tensor.hpp>

#include "core/cuda/kernels/mma_store-inl.h"
#include "core/cuda/kernels/wgmma_softmax-inl.h"

namespace attention::cuda {

/// One row: `sums` are its weighted values, in columns as `places` says.
template <typename T, typename Sums, typename Places>
ATTENTION_KERNEL_CODE void StoreWgmmaRow(const AttentionArgs& args, int row,
                                         int64_t result_row, RowState of_keys,
                                         const Places& places,
                                         const Sums& sums) {
  constexpr float kUnit = 1 / kWeightScale<T>;
  of_keys.sum *= kUnit;
  of_keys = WithScore(of_keys, MaxFactor<true>(args));
  const FinishedRow finished = FinishRow(args, of_keys, result_row);
  const RowState& state = finished.state;
  const float normalizer = Normalizer(args, state.sum);
  bool finite = true;
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < cute::size<1>(sums); n += 2) {
    const int column = cute::get<1>(places(row, n));
    if (column >= args.value.width) continue;
    float low = sums(row, n) * kUnit * normalizer;
    float high = sums(row, n + 1) * kUnit * normalizer;
    if (state.sum == 0) low = high = 0;
    finite = finite && IsFinite(low) && IsFinite(high);
    StoreColumns<T>(args, result_row, column, low, high);
  }
  if (!finite) MarkNotFinite(args, state, result_row);
  if (cute::get<1>(places(row, 0)) == 0) {
    StoreRowState(args, finished, result_row);
  }
}

/// Those of a group of four warps, of a tile (rows, columns, keys); `group` as
/// a block in WgmmaTilesOf(), its rows counted in such tiles.
template <typename T, typename Tile, typename Group, typename Sums,
          typename States, typename Mma>
ATTENTION_KERNEL_CODE void StoreWgmmaRows(const AttentionArgs& args,
                                          const Tile& tile, const Group& group,
                                          const Sums& sums,
                                          const States& states,
                                          const Mma& mma) {
  const auto places =
      mma.get_thread_slice(ThreadIndex())
          .partition_C(cute::make_identity_tensor(cute::take<0, 2>(tile)));
  const auto sum_rows = RowsOfThread(sums);
  const auto place_rows = RowsOfThread(places);
  const auto heads = cute::get<2>(group);  // (kv group, member)
  const int64_t head =
      cute::get<0>(heads) * (args.query_heads / args.key.heads) +
      cute::get<1>(heads);
  const int64_t first = int64_t{cute::get<0>(group)} * cute::get<0>(tile);
  ATTENTION_UNROLL_ALL
  for (int row = 0; row < cute::size<0>(sum_rows); ++row) {
    const int64_t query = first + cute::get<0>(place_rows(row, 0));
    if (query >= args.query_length) continue;
    StoreWgmmaRow<T>(args, row, head * args.query_length + query, states(row),
                     place_rows, sum_rows);
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_WGMMA_STORE_INL_H_
