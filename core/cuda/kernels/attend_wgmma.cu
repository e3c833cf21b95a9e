// attend_wgmma, for devices of compute capability 9.0 alone.

#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/device_kernel.h>

#include "core/cuda/kernels/device_kernels.h"
#include "core/cuda/kernels/wgmma_epilogue-inl.h"
#include "core/cuda/kernels/wgmma_mainloop-inl.h"
#include "kernel/fmha_kernel_tma_warpspecialized.hpp"

namespace attention::cuda {
namespace {

// Which block of rows a block has: those with the most keys, as a causal mask
// leaves them, first.
struct WgmmaBlocks {
  struct Params {
    int64_t first_block;
    int64_t blocks_of_head;
    int64_t heads_of_group;
  };
  const Params& params;
  bool is_valid_ = true;

  CUTLASS_DEVICE explicit WgmmaBlocks(const Params& params) : params(params) {}
  CUTLASS_DEVICE bool is_valid() const { return is_valid_; }
  CUTLASS_DEVICE WgmmaBlocks& operator++() {
    is_valid_ = false;
    return *this;
  }
  CUTLASS_DEVICE auto get_block_coord() const {
    const int64_t block = params.first_block + BlockIndex();
    const int64_t head = block / params.blocks_of_head;
    const int64_t rows =
        params.blocks_of_head - 1 - block % params.blocks_of_head;
    return cute::make_coord(
        static_cast<int>(rows), cute::_0{},
        cute::make_coord(static_cast<int>(head / params.heads_of_group),
                         static_cast<int>(head % params.heads_of_group)));
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
  const auto extents = cute::make_tuple(
      static_cast<int>(args.batch * args.key.heads), static_cast<int>(group),
      static_cast<int>(args.query_length), static_cast<int>(args.key_length),
      static_cast<int>(width));
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
      {shape.first_block, CeilDivide(args.query_length, kWgmmaRows), group}};

  const auto kernel = cutlass::device_kernel<Kernel>;
  const cudaError_t error = cudaFuncSetAttribute(
      reinterpret_cast<const void*>(kernel),
      cudaFuncAttributeMaxDynamicSharedMemorySize, kWgmmaSharedBytes);
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
