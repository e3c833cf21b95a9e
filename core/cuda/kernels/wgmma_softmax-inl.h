#ifndef ATTENTION_CORE_CUDA_KERNELS_WGMMA_SOFTMAX_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_WGMMA_SOFTMAX_INL_H_

// What attend_wgmma does between its two products: the online softmax of
// mma_softmax-inl.h, where CUTLASS's example 88 has its own.

#include <cute/tensor.hpp>

#include "core/cuda/kernels/mma_softmax-inl.h"
#include "core/cuda/kernels/wgmma_keys-inl.h"

namespace attention::cuda {

/// What example 88 calls a problem: its extents (B * Hkv, Hq / Hkv, Lq, Lk, D),
/// and what the steps of a block need to know beside them.
using WgmmaExtents = cute::tuple<int, int, int, int, int>;
struct WgmmaProblem : WgmmaExtents {
  WgmmaTiles tiles;
  const KeySpan* spans;  // of the batch entry's rows; null: all keys
  float factor;          // makes of products exponents of 2; scores for a cap
  float cap;             // softcap; 0: none
  float cap_steepness;
};

inline WgmmaExtents WgmmaExtentsOf(const AttentionArgs& args) {
  return {static_cast<int>(args.batch * args.key.heads),
          static_cast<int>(args.query_heads / args.key.heads),
          static_cast<int>(args.query_length),
          static_cast<int>(args.key_length), args.key.width};
}

/// The tiles of a block, (rows, _, (kv group, member)) as in WgmmaPlace.
template <typename Block>
ATTENTION_KERNEL_CODE WgmmaTiles WgmmaTilesOf(const AttentionArgs& args,
                                              const Block& block) {
  return TilesOfRows(args, cute::get<0>(cute::get<2>(block)) / args.key.heads,
                     int64_t{cute::get<0>(block)} * kWgmmaRows);
}

/// The warp.
template <typename Block>
ATTENTION_KERNEL_CODE WgmmaProblem MakeWgmmaProblem(const AttentionArgs& args,
                                                    const WgmmaExtents& extents,
                                                    const Block& block) {
  const int64_t batch = cute::get<0>(cute::get<2>(block)) / args.key.heads;
  return {extents,
          WgmmaTilesOf(args, block),
          args.key_ranges == nullptr
              ? nullptr
              : args.key_ranges + batch * args.query_length,
          args.softcap == 0 ? ExponentFactor(args) : ScoreFactor(args),
          static_cast<float>(args.softcap),
          CapSteepness(args.softcap)};
}

/// Tells example 88's loop how many tiles there are: those in which no row
/// leaves out keys, with the first one, and the others.
template <typename T>
struct WgmmaFusion {
  template <typename Block, typename Tile>
  ATTENTION_KERNEL_CODE int get_unmasked_trip_count(
      const Block&, const Tile&, const WgmmaProblem& problem) {
    return 1 + problem.tiles.inside;
  }
  template <typename Block, typename Tile>
  ATTENTION_KERNEL_CODE int get_masked_trip_count(const Block&, const Tile&,
                                                  const WgmmaProblem& problem) {
    return problem.tiles.count - 1 - problem.tiles.inside;
  }
};

/// A thread's part of a product of four warps as two rows, 8 apart, and their
/// columns: of the registers, pairs of columns change first, then rows (PTX
/// ISA, wgmma.mma_async, "Register fragments").
template <typename Sums>
ATTENTION_KERNEL_CODE auto RowsOfThread(Sums& sums) {
  const auto of = sums.layout();
  return cute::make_tensor(
      sums.data(),
      cute::make_layout(
          cute::get<0, 1>(of),
          cute::make_layout(cute::get<0, 0>(of), cute::get<0, 2>(of),
                            cute::get<1>(of), cute::get<2>(of))));
}

/// Scores of keys that a row does not read become -inf. `places` has each
/// score's query and, counted in the order of reading, key.
template <typename Scores, typename Places>
ATTENTION_KERNEL_CODE void LimitWgmmaRow(const WgmmaProblem& problem, int row,
                                         const Places& places, Scores& scores) {
  constexpr int kKeys = kWgmmaKeys;
  KeySpan span = {0, cute::get<3>(problem)};
  if (problem.spans != nullptr) {
    // Rows after the last one are computed with it, and not stored.
    const int last = cute::get<2>(problem) - 1;
    const int query = cute::get<0>(places(row, 0));
    span = problem.spans[query < last ? query : last];
  }
  const int column = cute::get<1>(places(row, 0));
  const int64_t first_key =
      int64_t{TileAt(problem.tiles, column / kKeys)} * kKeys + column % kKeys;
  const auto within = [first_key](int64_t key) {
    return static_cast<int>(Least(Most(key - first_key, 0), kKeys));
  };
  const int begin = within(span.begin);
  const int end = within(span.end);
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < cute::size<1>(scores); ++n) {
    const int key = cute::get<1>(places(row, n)) - column;
    if (key < begin || key >= end) scores(row, n) = -Infinity();
  }
}

/// Softcap. What makes of the scores, until now products, exponents of 2.
template <typename Scores>
ATTENTION_KERNEL_CODE float CapWgmmaScores(const WgmmaProblem& problem,
                                           Scores& scores) {
  if (problem.cap == 0) return problem.factor;
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < cute::size(scores); ++n) {
    scores(n) = CappedScore(Multiply(scores(n), problem.factor), problem.cap,
                            problem.cap_steepness);
  }
  return kLog2E;
}

/// Replaces one row's scores by weight(score); returns their sum.
template <typename T, typename Weight, typename Scores>
ATTENTION_KERNEL_CODE float WeightWgmmaRow(int row, const Weight& weight,
                                           Scores& scores) {
  float sum = 0;
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < cute::size<1>(scores); ++n) {
    float& score = scores(row, n);
    score = kWeightScale<T> * FastExp2(weight(score));
    sum += score;
  }
  return sum;
}

/// Makes weights of one row's scores, which times `factor` are exponents of 2.
/// What the row's sums so far are to be multiplied by.
template <typename T, typename Scores>
ATTENTION_KERNEL_CODE float AddWgmmaRow(int row, float factor, RowState& state,
                                        Scores& scores) {
  float largest = scores(row, 0);
  ATTENTION_UNROLL_ALL
  for (int n = 1; n < cute::size<1>(scores); ++n) {
    largest = Larger(largest, scores(row, n));
  }
  const Rescaling now = RaiseMax(LargestOfMmaRow(largest), factor, state);
  const float base = now.base;
  const float exponent = Multiply(base, factor);
  const float sum =
      FusesExponents(exponent)
          ? WeightWgmmaRow<T>(
                row, [=](float s) { return Fma(s, factor, -exponent); }, scores)
          : WeightWgmmaRow<T>(
                row, [=](float s) { return Multiply(s - base, factor); },
                scores);
  state.sum = Fma(state.sum, now.scale, sum);
  return now.scale;
}

}  // namespace attention::cuda

namespace cutlass::fmha::collective {

template <typename Sum, typename Fusion, typename Params>
struct CollectiveSoftmax;

/// The place that example 88 has for a softmax. Its steps get the products of a
/// tile, of which they make weights, and the sums of weighted values so far.
template <typename T, typename Params>
struct CollectiveSoftmax<float, attention::cuda::WgmmaFusion<T>, Params> {
  ATTENTION_KERNEL_CODE explicit CollectiveSoftmax(const Params&) {}

  template <typename Sums, typename Mma>
  ATTENTION_KERNEL_CODE auto init(Sums& sums, const Mma&) {
    namespace ours = attention::cuda;
    const auto rows = cute::size<0>(ours::RowsOfThread(sums));
    auto states = cute::make_tensor<ours::RowState>(rows);
    cute::fill(states, ours::RowState{-ours::Infinity(), 0.0F});
    return states;
  }

  /// Of the first tile.
  template <typename Scores, typename Mma, typename Places, typename State>
  ATTENTION_KERNEL_CODE void step(
      Scores& scores, const Mma&, const Places& places, State& state,
      const attention::cuda::WgmmaProblem& problem) {
    AddTile<true>(scores, places, problem, state, [](int, float) {});
  }

  /// Of the others; kMasked: in which a row may leave out keys.
  template <bool kMasked = true, typename Scores, typename Mma, typename Places,
            typename State, typename Sums, typename SumsMma>
  ATTENTION_KERNEL_CODE void step(
      Scores& scores, const Mma&, const Places& places, State& state,
      Sums& sums, const SumsMma&,
      const attention::cuda::WgmmaProblem& problem) {
    auto columns = attention::cuda::RowsOfThread(sums);
    AddTile<kMasked>(scores, places, problem, state, [&](int row, float scale) {
      ATTENTION_UNROLL_ALL
      for (int n = 0; n < cute::size<1>(columns); ++n) {
        columns(row, n) *= scale;
      }
    });
  }

  /// The rows' states, each of all four threads that have a part of it.
  template <typename State, typename Sums, typename Mma>
  ATTENTION_KERNEL_CODE auto tail(State& state, const Sums&, const Mma&) {
    ATTENTION_UNROLL_ALL
    for (int row = 0; row < cute::size(state); ++row) {
      float& sum = state(row).sum;
      sum += attention::cuda::ShuffleXor(sum, 1);
      sum += attention::cuda::ShuffleXor(sum, 2);
    }
    return state;
  }

 private:
  template <bool kMasked, typename Scores, typename Places, typename State,
            typename Rescale>
  ATTENTION_KERNEL_CODE static void AddTile(
      Scores& products, const Places& places,
      const attention::cuda::WgmmaProblem& problem, State& state,
      const Rescale& rescale) {
    namespace ours = attention::cuda;
    auto scores = ours::RowsOfThread(products);
    const float factor = ours::CapWgmmaScores(problem, scores);
    if constexpr (kMasked) {
      auto row_places = ours::RowsOfThread(places);
      ATTENTION_UNROLL_ALL
      for (int row = 0; row < cute::size<0>(scores); ++row) {
        ours::LimitWgmmaRow(problem, row, row_places, scores);
      }
    }
    ATTENTION_UNROLL_ALL
    for (int row = 0; row < cute::size<0>(scores); ++row) {
      rescale(row, ours::AddWgmmaRow<T>(row, factor, state(row), scores));
    }
  }
};

}  // namespace cutlass::fmha::collective

#endif  // ATTENTION_CORE_CUDA_KERNELS_WGMMA_SOFTMAX_INL_H_
