#ifndef ATTENTION_CORE_CUDA_KERNELS_WGMMA_MAINLOOP_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_WGMMA_MAINLOOP_INL_H_

// The loop over keys of attend_wgmma: that of CUTLASS's example 88 (Hopper
// FMHA, tma_warpspecialized), after Shah et al., "FlashAttention-3" (2024),
// over the tiles that rows read. For devices alone.

#include <cute/tensor.hpp>

#include "collective/fmha_collective_tma_warpspecialized.hpp"
#include "core/cuda/kernels/wgmma_softmax-inl.h"

namespace attention::cuda {

/// Of (sequence, width, (B * Hkv, Hq / Hkv)): query heads that share keys are
/// neighbours, so that keys have a stride of 0 along the last extent.
using WgmmaQueryStride =
    cute::tuple<int64_t, cute::_1, cute::tuple<int64_t, int64_t>>;
using WgmmaKeyStride =
    cute::tuple<int64_t, cute::_1, cute::tuple<int64_t, cute::_0>>;

/// What example 88's loop is made of, for elements T (CUTLASS's Element).
template <typename T, typename Element, int kWidth>
using WgmmaExampleLoop =
    cutlass::fmha::collective::FmhaMainloopTmaWarpSpecialized<
        Element, float, float,
        cute::Shape<cute::Int<kWgmmaRows>, cute::Int<kWgmmaKeys>,
                    cute::Int<kWidth>>,
        WgmmaQueryStride, WgmmaKeyStride, WgmmaKeyStride, WgmmaFusion<T>>;

template <typename T, typename Element, int kWidth>
struct WgmmaMainloop : WgmmaExampleLoop<T, Element, kWidth> {
  using Base = WgmmaExampleLoop<T, Element, kWidth>;
  using Base::NumMmaWarpGroups;
  using typename Base::MainloopPipeline;
  using typename Base::MainloopPipelineQ;
  using typename Base::PipelineState;
  using typename Base::PipelineStateQ;
  using typename Base::SharedStorage;

  struct Params : Base::Params {
    AttentionArgs args;
  };

  /// The warp that brings queries, keys and values to shared memory, in the
  /// order in which compute() waits for them.
  template <bool kLoadQ, typename Block, typename Extents, typename Barrier>
  ATTENTION_KERNEL_CODE void load_kv_maybe_q(
      int rank, const Block& block, const Params& params,
      const Extents& extents, MainloopPipeline& pipeline, PipelineState& write,
      MainloopPipelineQ& query_pipeline, PipelineStateQ& query_write,
      SharedStorage& storage, Barrier&, bool) {
    static_assert(kLoadQ && NumMmaWarpGroups == 2);
    const WgmmaTiles tiles = WgmmaTilesOf(params.args, block);
    const int elected = cute::elect_one_sync();

    typename Base::LoadQ queries{params.tma_load_q, query_pipeline,
                                 storage.smem_q};
    auto query_state =
        queries.init_state(cute::_0{}, extents, typename Base::TileShapeQK{},
                           block, NumMmaWarpGroups);
    typename Base::LoadK keys{params.tma_load_k, pipeline, storage.smem_k};
    auto key_state = keys.init_state(
        rank, extents, typename Base::TileShapeQK{}, block, tiles.count);
    typename Base::LoadV values{params.tma_load_v, pipeline, storage.smem_v};
    auto value_state = values.init_state(
        rank, extents, typename Base::TileShapePV{}, block, tiles.count);

    // Example 88's steps count down what is left to load: here, always one.
    const auto bring = [&](auto& load, auto& state, auto& to, int tile) {
      const int* const at = &tile;
      int one = 1;
      load.template step</*kAdvanceIterator=*/false>(at, state, to, elected,
                                                     one);
    };
    bring(queries, query_state, query_write, 0);
    bring(keys, key_state, write, TileAt(tiles, 0));
    bring(queries, query_state, query_write, 1);
    bring(values, value_state, write, TileAt(tiles, 0));
    for (int at = 1; at < tiles.count; ++at) {
      bring(keys, key_state, write, TileAt(tiles, at));
      bring(values, value_state, write, TileAt(tiles, at));
    }
  }

  /// One group of four warps: sums of weighted values, and the states of their
  /// rows.
  template <typename Block, typename Extents, typename... Rest>
  ATTENTION_KERNEL_CODE auto compute(const Block& block, const Block& group,
                                     const Params& params,
                                     const Extents& extents, Rest&... rest) {
    const WgmmaProblem problem = MakeWgmmaProblem(params.args, extents, block);
    return Base::compute(block, group, params, problem, rest...);
  }
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_WGMMA_MAINLOOP_INL_H_
