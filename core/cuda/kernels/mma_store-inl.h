#ifndef ATTENTION_CORE_CUDA_KERNELS_MMA_STORE_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_MMA_STORE_INL_H_

// What attend_mma stores of its rows, after its warps' parts of them have
// become one.

#include "core/cuda/kernels/mma_softmax-inl.h"

namespace attention::cuda {

/// Adds up what the 4 threads of a row have, and makes scores of the maxima.
template <typename Instance>
ATTENTION_KERNEL_CODE void FinishStates(const AttentionArgs& args,
                                        MmaRegisters<Instance>& registers) {
  const float factor = MaxFactor<Instance::kOptions>(args);
  ForEachMmaRow<Instance>([&](int row) {
    RowState& state = registers.state.rows[row / 2][row % 2];
    state.sum += ShuffleXor(state.sum, 1);
    state.sum += ShuffleXor(state.sum, 2);
    state = WithScore(state, factor);
  });
}

/// Where warps share rows, each finishes some of the columns: every fourth tile
/// of 8.
template <typename Instance>
ATTENTION_KERNEL_CODE bool FinishesColumns(int tile) {
  return !Instance::kSharesRows || tile % 4 == WarpIndex();
}
/// Whether the thread stores what there is once for each row.
template <typename Instance>
ATTENTION_KERNEL_CODE bool FinishesRows() {
  return MmaColumn() == 0 && (!Instance::kSharesRows || WarpIndex() == 0);
}

/// A row's state of all warps' keys, and what each warp's sums are multiplied
/// by to be added; 0 where it had no key for the row, and its sums may be NaN.
struct WarpStates {
  RowState all;
  float scales[4];
};

ATTENTION_KERNEL_CODE WarpStates MergeStatesOfWarps(const RowState* of_warps) {
  WarpStates merged = {{-Infinity(), 0.0F}, {}};
  ATTENTION_UNROLL_ALL
  for (int warp = 0; warp < 4; ++warp) {
    merged.all.max =
        Larger(merged.all.max, of_warps[warp * kMmaSharedRows].max);
  }
  const float base = Base(merged.all.max);
  ATTENTION_UNROLL_ALL
  for (int warp = 0; warp < 4; ++warp) {
    const RowState& state = of_warps[warp * kMmaSharedRows];
    if (state.sum == 0) continue;
    merged.scales[warp] = Exp(state.max - base);
    merged.all.sum = Fma(state.sum, merged.scales[warp], merged.all.sum);
  }
  return merged;
}

/// The warps' parts of the rows that they share become one: of the state in
/// each warp, of the sums in that which finishes the columns. In the memory of
/// queries, keys and values.
template <typename Instance>
ATTENTION_KERNEL_CODE void MergeWarps(const MmaMemory<Instance>& memory,
                                      MmaRegisters<Instance>& registers) {
  constexpr int kColumnTiles = Instance::kWidth / 8;
  // [warp][row], and of each thread its four: [warp][tile of columns][lane].
  auto* const states = reinterpret_cast<RowState*>(memory.queries.data);
  auto* const sums = reinterpret_cast<Float4*>(memory.keys.data) + LaneIndex();
  SyncBlock();  // everyone is done with queries, keys and values
  ATTENTION_UNROLL_ALL
  for (int half = 0; half < 2; ++half) {
    if (MmaColumn() != 0) continue;
    states[WarpIndex() * kMmaSharedRows + MmaRow<Instance>(0, half)] =
        registers.state.rows[0][half];
  }
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < kColumnTiles; ++n) {
    Float4 four;
    for (int i = 0; i < 4; ++i) four.at[i] = registers.sums[0][n][i];
    const int at = (WarpIndex() * kColumnTiles + n) * kWarp;
    sums[at] = four;
  }
  SyncBlock();
  WarpStates rows[2];
  ATTENTION_UNROLL_ALL
  for (int half = 0; half < 2; ++half) {
    rows[half] = MergeStatesOfWarps(states + MmaRow<Instance>(0, half));
    registers.state.rows[0][half] = rows[half].all;
  }
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < kColumnTiles; ++n) {
    if (!FinishesColumns<Instance>(n)) continue;
    float(&all)[4] = registers.sums[0][n];
    for (float& sum : all) sum = 0;
    ATTENTION_UNROLL_ALL
    for (int warp = 0; warp < 4; ++warp) {
      const int at = (warp * kColumnTiles + n) * kWarp;
      const Float4 four = sums[at];
      ATTENTION_UNROLL_ALL
      for (int i = 0; i < 4; ++i) {
        const float scale = rows[i / 2].scales[warp];
        all[i] = scale == 0 ? all[i] : Fma(four.at[i], scale, all[i]);
      }
    }
  }
}

/// Stores two columns side by side.
template <typename T>
ATTENTION_KERNEL_CODE void StoreColumns(const AttentionArgs& args,
                                        int64_t result_row, int column,
                                        float low, float high) {
  const int64_t at = result_row * args.value.width + column;
  auto* const to = static_cast<T*>(args.output) + at;
  if (args.value.width % 2 == 0) {
    *reinterpret_cast<uint32_t*>(to) = Pair<T>(low, high);
    return;
  }
  to[0] = Round<T>(low);
  if (column + 1 < args.value.width) to[1] = Round<T>(high);
}

template <typename Instance>
ATTENTION_KERNEL_CODE void StoreMmaPartial(
    const AttentionArgs& args, int64_t split, int64_t result_row, int half,
    const RowState& state, const MmaSums<Instance::kWidth / 8>& sums) {
  float* const partial = PartialOf(args, split, result_row);
  if (FinishesRows<Instance>()) StorePartialState(state, partial);
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kWidth / 8; ++n) {
    if (!FinishesColumns<Instance>(n)) continue;
    for (int i = 0; i < 2; ++i) {
      const int column = n * 8 + MmaColumn() + i;
      if (column < args.value.width) {
        partial[kPartialValues + column] = sums[n][2 * half + i];
      }
    }
  }
}

template <typename Instance>
ATTENTION_KERNEL_CODE void StoreMmaRow(
    const AttentionArgs& args, int64_t result_row, int half,
    const RowState& of_keys, const MmaSums<Instance::kWidth / 8>& sums) {
  const FinishedRow row = FinishRow(args, of_keys, result_row);
  const RowState& state = row.state;
  const float normalizer = Normalizer(args, state.sum);
  bool finite = true;
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kWidth / 8; ++n) {
    const int column = n * 8 + MmaColumn();
    if (!FinishesColumns<Instance>(n) || column >= args.value.width) continue;
    float low = sums[n][2 * half] * normalizer;
    float high = sums[n][2 * half + 1] * normalizer;
    if (state.sum == 0) low = high = 0;
    finite = finite && IsFinite(low) && IsFinite(high);
    StoreColumns<typename Instance::T>(args, result_row, column, low, high);
  }
  if (!finite) MarkNotFinite(args, state, result_row);
  if (FinishesRows<Instance>()) StoreRowState(args, row, result_row);
}

template <typename Instance>
ATTENTION_KERNEL_CODE void StoreMmaRows(const AttentionArgs& args,
                                        int64_t split, const RowInfo* rows,
                                        MmaRegisters<Instance>& registers) {
  constexpr float kUnit = 1 / kWeightScale<typename Instance::T>;
  ATTENTION_UNROLL_ALL
  for (int tile = 0; tile < Instance::kTiles; ++tile) {
    ATTENTION_UNROLL_ALL
    for (int half = 0; half < 2; ++half) {
      RowState state = registers.state.rows[tile][half];
      state.sum *= kUnit;
      ATTENTION_UNROLL_ALL
      for (int n = 0; n < Instance::kWidth / 8; ++n) {
        registers.sums[tile][n][2 * half] *= kUnit;
        registers.sums[tile][n][2 * half + 1] *= kUnit;
      }
      const RowInfo& row = rows[MmaRow<Instance>(tile, half)];
      if (row.query < 0) continue;
      const int64_t result_row = ResultRow(args, row);
      if (args.splits > 1) {
        StoreMmaPartial<Instance>(args, split, result_row, half, state,
                                  registers.sums[tile]);
      } else {
        StoreMmaRow<Instance>(args, result_row, half, state,
                              registers.sums[tile]);
      }
    }
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_MMA_STORE_INL_H_
