// attend_wgmma, for devices of compute capability 9.0 alone.

#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/device_kernel.h>
#include <cutlass/pipeline/pipeline.hpp>

#include "core/cuda/kernels/device_kernels.h"
#include "core/cuda/kernels/wgmma_mainloop-inl.h"
#include "core/cuda/kernels/wgmma_store-inl.h"
#include "kernel/fmha_kernel_tma_warpspecialized.hpp"

namespace attention::cuda {
namespace {

// In the place of example 88's scheduler, whose names these are: a block has
// one tile of rows.
struct WgmmaBlocks {
  using Params = AttentionArgs;
  const Params& args;
  bool is_valid_ = true;

  CUTLASS_DEVICE explicit WgmmaBlocks(const Params& args) : args(args) {}
  CUTLASS_DEVICE bool is_valid() const { return is_valid_; }
  CUTLASS_DEVICE WgmmaBlocks& operator++() {
    is_valid_ = false;
    return *this;
  }
  CUTLASS_DEVICE auto get_block_coord() const {
    const WgmmaPlace place = WgmmaPlaceOf(args, BlockIndex());
    return cute::make_coord(place.rows, cute::_0{},
                            cute::make_coord(place.kv_group, place.member));
  }
};

// In the place of its epilogue: this one reads nothing, and needs no shared
// memory.
template <typename T>
struct WgmmaEpilogue {
  using LoadPipeline = cutlass::PipelineTransactionAsync<1>;
  using PipelineStorage = typename LoadPipeline::SharedStorage;
  static constexpr int TmaTransactionBytes = 0;
  struct TensorStorage {};
  struct Arguments {};
  using Params = AttentionArgs;

  template <typename Tile, typename Group, typename Result, typename Mma,
            typename Extents>
  CUTLASS_DEVICE void operator()(const Tile& tile, const Group& group,
                                 const Result& result, const Mma& mma,
                                 const Extents&, const Params& args,
                                 const LoadPipeline&, TensorStorage&) {
    StoreWgmmaRows<T>(args, tile, group, cute::get<0>(result),
                      cute::get<1>(result), mma);
  }
};

template <typename T, typename Element, int kWidth>
int Launch(const AttentionArgs& args, const LaunchShape& shape, void* stream) {
  using Mainloop = WgmmaMainloop<T, Element, kWidth>;
  using Kernel = cutlass::fmha::kernel::FmhaKernelTmaWarpSpecialized<
      Mainloop, WgmmaEpilogue<T>, WgmmaBlocks>;
  static_assert(Kernel::MaxThreadsPerBlock == kWgmmaThreads);
  static_assert(Kernel::SharedStorageSize <= kWgmmaSharedBytes);

  const int64_t group = args.query_heads / args.key.heads;
  const int64_t width = args.key.width;
  const WgmmaExtents extents = WgmmaExtentsOf(args);
  const int64_t query_head = args.query_length * width;
  const WgmmaQueryStride query_stride = {
      width, cute::_1{}, {group * query_head, query_head}};
  const WgmmaKeyStride key_stride = {
      width, cute::_1{}, {args.key_length * width, cute::_0{}}};
  const typename Kernel::Params params = {
      extents,
      {Mainloop::Base::to_underlying_arguments(
           extents,
           {static_cast<const Element*>(args.query.data), query_stride,
            static_cast<const Element*>(args.key.data), key_stride,
            static_cast<const Element*>(args.value.data), key_stride},
           nullptr),
       args},
      args,
      args};

  const auto kernel = cutlass::device_kernel<Kernel>;
  static SharedMemoryLimit limit;
  const cudaError_t error = limit.Raise(reinterpret_cast<const void*>(kernel));
  if (error != cudaSuccess) return error;
  kernel<<<static_cast<unsigned>(shape.blocks), kWgmmaThreads,
           kWgmmaSharedBytes, static_cast<cudaStream_t>(stream)>>>(params);
  return cudaGetLastError();
}

template <typename T, typename Element>
int LaunchWidth(const AttentionArgs& args, const LaunchShape& shape,
                void* stream) {
  return args.key.width <= 64 ? Launch<T, Element, 64>(args, shape, stream)
                              : Launch<T, Element, 128>(args, shape, stream);
}

}  // namespace

int LaunchAttendWgmma(const AttentionArgs& args, const LaunchShape& shape,
                      void* stream) {
  return args.query.type == Element::kFloat16
             ? LaunchWidth<Half, cutlass::half_t>(args, shape, stream)
             : LaunchWidth<Brain, cutlass::bfloat16_t>(args, shape, stream);
}

}  // namespace attention::cuda
