// attend_wgmma on the host: all that is ours of it, between products that are
// computed one number after the other. Who waits for whom, and what TMA brings,
// are CUTLASS's and are not here.

#include "core/cuda/emulation/emulated_wgmma.h"

#include <cute/algorithm/gemm.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/tensor.hpp>
#include <type_traits>

#include "core/cuda/emulation/emulation.h"
#include "core/cuda/emulation/tensor_core.h"
#include "core/cuda/kernels/wgmma_softmax-inl.h"
#include "core/cuda/kernels/wgmma_store-inl.h"

namespace attention::cuda {
namespace {

constexpr int kGroupRows = kWgmmaRows / 2;  // of four warps
constexpr int kLoaders = 128;               // threads that bring tiles

// Products of four warps, 64 x columns. Both element types lie alike.
template <int kColumns>
auto MmaOf() {
  using cute::GMMA::Major;
  if constexpr (kColumns == 64) {
    return cute::make_tiled_mma(
        cute::SM90::GMMA::MMA_64x64x16_F32F16F16_SS<Major::K, Major::K>{});
  } else {
    return cute::make_tiled_mma(
        cute::SM90::GMMA::MMA_64x128x16_F32F16F16_SS<Major::K, Major::K>{});
  }
}

// a . b of `count` elements, each of a tensor and its stride, as tensor cores
// add products up.
template <typename A, typename B>
float AddDot(float sum, int count, const A& a, const B& b) {
  for (int k = 0; k < count; k += kTensorCoreBlock) {
    float as[kTensorCoreBlock] = {};
    float bs[kTensorCoreBlock] = {};
    for (int n = 0; n < kTensorCoreBlock && k + n < count; ++n) {
      as[n] = a(k + n);
      bs[n] = b(k + n);
    }
    sum = AddProducts(sum, as, bs);
  }
  return sum;
}

// Element (row, column) of (heads, length, width), 0 beyond its ends, as TMA
// has it.
template <typename T>
float ElementOf(const Rows& rows, int64_t head, int64_t row, int64_t column) {
  if (row >= rows.length || column >= rows.width) return 0;
  return Widen(static_cast<const T*>(
      rows.data)[(head * rows.length + row) * rows.width + column]);
}

template <typename T, int kWidth>
void Attend(const AttentionArgs& args, int64_t block) {
  using Softmax =
      cutlass::fmha::collective::CollectiveSoftmax<float, WgmmaFusion<T>, int>;
  const WgmmaPlace place = WgmmaPlaceOf(args, block);
  const int group = ThreadIndex() / 128 - 1;  // -1: a loader
  const auto heads = cute::make_coord(place.kv_group, place.member);
  const auto coord = cute::make_coord(place.rows, cute::_0{}, heads);
  const auto group_coord =
      cute::make_coord(2 * place.rows + group, cute::_0{}, heads);
  const int64_t query_head =
      int64_t{place.kv_group} * (args.query_heads / args.key.heads) +
      place.member;

  const WgmmaProblem problem =
      MakeWgmmaProblem(args, WgmmaExtentsOf(args), coord);
  WgmmaFusion<T> fusion;
  const int unmasked = fusion.get_unmasked_trip_count(coord, 0, problem);
  const int count = unmasked + fusion.get_masked_trip_count(coord, 0, problem);

  const auto qk = MmaOf<kWgmmaKeys>();
  const auto pv = MmaOf<kWidth>();
  const auto pv_tile = cute::Shape<cute::Int<kGroupRows>, cute::Int<kWidth>,
                                   cute::Int<kWgmmaKeys>>{};
  auto places =
      qk.get_thread_slice(ThreadIndex())
          .partition_C(cute::make_identity_tensor(
              cute::Shape<cute::Int<kGroupRows>, cute::Int<kWgmmaKeys>>{}));
  places.data() =
      places.data() + cute::E<0>{} * cute::get<0>(group_coord) * kGroupRows;
  const auto columns =
      pv.get_thread_slice(ThreadIndex())
          .partition_C(cute::make_identity_tensor(cute::take<0, 2>(pv_tile)));
  auto sums = cute::partition_fragment_C(pv, cute::take<0, 2>(pv_tile));
  cute::clear(sums);
  Softmax softmax(0);
  auto state = softmax.init(sums, pv);
  // (query of the block, key of the tile), rounded
  float* const weights = reinterpret_cast<float*>(SharedMemory());
  for (int at = 0; at < count; ++at) {
    const int64_t first_key = int64_t{TileAt(problem.tiles, at)} * kWgmmaKeys;
    if (group >= 0) {
      auto scores = cute::make_tensor<float>(places.shape());
      for (int n = 0; n < cute::size(scores); ++n) {
        const int query = cute::get<0>(places(n));
        const int64_t key = first_key + cute::get<1>(places(n)) % kWgmmaKeys;
        scores(n) = AddDot(
            0, kWidth,
            [&](int k) {
              return ElementOf<T>(args.query, query_head, query, k);
            },
            [&](int k) {
              return ElementOf<T>(args.key, place.kv_group, key, k);
            });
      }
      if (at == 0) {
        softmax.step(scores, qk, places, state, problem);
      } else if (at < unmasked) {
        softmax.template step<false>(scores, qk, places, state, sums, pv,
                                     problem);
      } else {
        softmax.step(scores, qk, places, state, sums, pv, problem);
      }
      for (int n = 0; n < cute::size(scores); ++n) {
        const int row = cute::get<0>(places(n)) % kWgmmaRows;
        const int key = cute::get<1>(places(n)) % kWgmmaKeys;
        weights[row * kWgmmaKeys + key] = Widen(Round<T>(scores(n)));
      }
    }
    SyncBlock();
    for (int n = 0; group >= 0 && n < cute::size(sums); ++n) {
      const int row = group * kGroupRows + cute::get<0>(columns(n));
      const int column = cute::get<1>(columns(n));
      sums(n) = AddDot(
          sums(n), kWgmmaKeys,
          [&](int k) { return weights[row * kWgmmaKeys + k]; },
          [&](int k) {
            return ElementOf<T>(args.value, place.kv_group, first_key + k,
                                column);
          });
    }
    SyncBlock();
    places.data() = places.data() + cute::E<1>{} * cute::Int<kWgmmaKeys>{};
  }
  if (group < 0) return;
  const auto states = softmax.tail(state, sums, pv);
  StoreWgmmaRows<T>(args, pv_tile, group_coord, sums, states, pv);
}

template <typename T>
int LaunchType(const AttentionArgs& args, const LaunchShape& shape) {
  const auto attend = args.key.width <= 64 ? Attend<T, 64> : Attend<T, 128>;
  emulation::RunGrid(shape.blocks, kWgmmaThreads,
                     kWgmmaRows * kWgmmaKeys * int64_t{sizeof(float)},
                     [&] { attend(args, shape.first_block + BlockIndex()); });
  return 0;
}

}  // namespace

int LaunchEmulatedWgmma(const AttentionArgs& args, const LaunchShape& shape,
                        void*) {
  return args.query.type == Element::kFloat16 ? LaunchType<Half>(args, shape)
                                              : LaunchType<Brain>(args, shape);
}

}  // namespace attention::cuda
