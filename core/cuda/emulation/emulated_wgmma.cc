// attend_wgmma on the host: all that is ours of it, between products that are
// computed one number after the other. Who waits for whom, and what TMA brings,
// are CUTLASS's and are not here.

#include "core/cuda/emulation/emulated_wgmma.h"

#include <algorithm>
#include <cute/atom/mma_atom.hpp>
#include <cute/tensor.hpp>

#include "core/cuda/emulation/emulation.h"
#include "core/cuda/emulation/tensor_core.h"
#include "core/cuda/kernels/wgmma_softmax-inl.h"
#include "core/cuda/kernels/wgmma_store-inl.h"

namespace attention::cuda {
namespace {

constexpr int kGroupRows = kWgmmaRows / 2;  // of four warps
constexpr int kGroupThreads = 128;          // of which the first bring tiles

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

// What a block multiplies, in FP32.
template <typename T>
class Operands {
 public:
  Operands(const AttentionArgs& args, const WgmmaPlace& place)
      : args_(args),
        query_head_(int64_t{place.kv_group} *
                        (args.query_heads / args.key.heads) +
                    place.member),
        kv_head_(place.kv_group) {}

  float Query(int64_t query, int n) const {
    return At(args_.query, query_head_, query, n);
  }
  float Key(int64_t key, int n) const {
    return At(args_.key, kv_head_, key, n);
  }
  float Value(int64_t key, int n) const {
    return At(args_.value, kv_head_, key, n);
  }

 private:
  // 0 beyond the ends of (heads, length, width), as TMA has it.
  static float At(const Rows& rows, int64_t head, int64_t row, int column) {
    if (row >= rows.length || column >= rows.width) return 0;
    return Widen(static_cast<const T*>(
        rows.data)[(head * rows.length + row) * rows.width + column]);
  }

  const AttentionArgs& args_;
  const int64_t query_head_;
  const int64_t kv_head_;
};

// sum + a(0) b(0) + ... of `count` elements, as tensor cores add products.
template <typename A, typename B>
float AddDot(float sum, int count, const A& a, const B& b) {
  static_assert(kWgmmaKeys % kTensorCoreBlock == 0);
  for (int k = 0; k < count; k += kTensorCoreBlock) {
    float as[kTensorCoreBlock];
    float bs[kTensorCoreBlock];
    for (int n = 0; n < kTensorCoreBlock; ++n) {
      as[n] = a(k + n);
      bs[n] = b(k + n);
    }
    sum = AddProducts(sum, as, bs);
  }
  return sum;
}

// The thread's products of queries and a tile's keys. `places` as in
// LimitWgmmaRow().
template <int kWidth, typename T, typename Places>
auto MultiplyKeys(const Operands<T>& operands, int64_t first_key,
                  const Places& places) {
  auto scores = cute::make_tensor<float>(places.shape());
  for (int n = 0; n < cute::size(scores); ++n) {
    const int64_t query = cute::get<0>(places(n));
    const int64_t key = first_key + cute::get<1>(places(n)) % kWgmmaKeys;
    scores(n) = AddDot(
        0, kWidth, [&](int k) { return operands.Query(query, k); },
        [&](int k) { return operands.Key(key, k); });
  }
  return scores;
}

// Adds the thread's products of weights, (row, key of the tile), and a tile's
// values. `columns` has each sum's row and column.
template <typename T, typename Columns, typename Sums>
void MultiplyValues(const Operands<T>& operands, int64_t first_key,
                    const float* weights, const Columns& columns, Sums& sums) {
  for (int n = 0; n < cute::size(sums); ++n) {
    const float* const row = weights + cute::get<0>(columns(n)) * kWgmmaKeys;
    const int column = cute::get<1>(columns(n));
    sums(n) = AddDot(
        sums(n), kWgmmaKeys, [&](int k) { return row[k]; },
        [&](int k) { return operands.Value(first_key + k, column); });
  }
}

// Weights as the second product has them, to where other threads read them.
template <typename T, typename Places, typename Scores>
void StoreWeights(const Places& places, const Scores& scores, float* weights) {
  for (int n = 0; n < cute::size(scores); ++n) {
    const int64_t row = cute::get<0>(places(n)) % kGroupRows;
    const int64_t key = cute::get<1>(places(n)) % kWgmmaKeys;
    weights[row * kWgmmaKeys + key] = Widen(Round<T>(scores(n)));
  }
}

// A thread's elements of a tile (rows, columns).
template <typename Mma, typename Tile>
auto PlacesOf(const Mma& mma, const Tile& tile) {
  return mma.get_thread_slice(ThreadIndex())
      .partition_C(cute::make_identity_tensor(tile));
}

template <typename T, int kWidth>
void Attend(const AttentionArgs& args, int64_t block) {
  const WgmmaPlace place = WgmmaPlaceOf(args, block);
  const int group = ThreadIndex() / kGroupThreads - 1;  // -1: it brings tiles
  const auto heads = cute::make_coord(place.kv_group, place.member);
  const auto coord = cute::make_coord(place.rows, cute::_0{}, heads);
  const auto group_coord =
      cute::make_coord(2 * place.rows + group, cute::_0{}, heads);
  const Operands<T> operands(args, place);
  const WgmmaProblem problem =
      MakeWgmmaProblem(args, WgmmaExtentsOf(args), coord);
  WgmmaFusion<T> fusion;
  const int unmasked = fusion.get_unmasked_trip_count(coord, 0, problem);
  const int count = unmasked + fusion.get_masked_trip_count(coord, 0, problem);

  using GroupRows = cute::Int<kGroupRows>;
  using Keys = cute::Int<kWgmmaKeys>;
  const auto qk = MmaOf<kWgmmaKeys>();
  const auto pv = MmaOf<kWidth>();
  const cute::Shape<GroupRows, cute::Int<kWidth>, Keys> pv_tile;
  auto places = PlacesOf(qk, cute::Shape<GroupRows, Keys>{});
  places.data() =
      places.data() + cute::E<0>{} * cute::get<0>(group_coord) * kGroupRows;
  const auto columns = PlacesOf(pv, cute::take<0, 2>(pv_tile));
  auto sums = cute::partition_fragment_C(pv, cute::take<0, 2>(pv_tile));
  cute::clear(sums);
  cutlass::fmha::collective::CollectiveSoftmax<float, WgmmaFusion<T>, int>
      softmax(0);
  auto state = softmax.init(sums, pv);
  float* const weights = reinterpret_cast<float*>(SharedMemory()) +
                         int64_t{std::max(group, 0)} * kGroupRows * kWgmmaKeys;
  for (int at = 0; at < count; ++at) {
    const int64_t first_key = int64_t{TileAt(problem.tiles, at)} * kWgmmaKeys;
    if (group >= 0) {
      auto scores = MultiplyKeys<kWidth>(operands, first_key, places);
      if (at == 0) {
        softmax.step(scores, qk, places, state, problem);
      } else if (at < unmasked) {
        softmax.template step<false>(scores, qk, places, state, sums, pv,
                                     problem);
      } else {
        softmax.step(scores, qk, places, state, sums, pv, problem);
      }
      StoreWeights<T>(places, scores, weights);
    }
    SyncBlock();
    if (group >= 0) {
      MultiplyValues(operands, first_key, weights, columns, sums);
    }
    SyncBlock();
    places.data() = places.data() + cute::E<1>{} * Keys{};
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
                     [&] { attend(args, BlockIndex()); });
  return 0;
}

}  // namespace

int LaunchEmulatedWgmma(const AttentionArgs& args, const LaunchShape& shape) {
  return args.query.type == Element::kFloat16 ? LaunchType<Half>(args, shape)
                                              : LaunchType<Brain>(args, shape);
}

}  // namespace attention::cuda
