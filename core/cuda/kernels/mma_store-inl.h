#ifndef ATTENTION_CORE_CUDA_KERNELS_MMA_STORE_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_MMA_STORE_INL_H_

// What attend_mma stores of its rows.

#include "core/cuda/kernels/mma_softmax-inl.h"

namespace attention::cuda {

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
  if (MmaColumn() == 0) StorePartialState(state, partial);
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kWidth / 8; ++n) {
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
    if (column >= args.value.width) continue;
    float low = sums[n][2 * half] * normalizer;
    float high = sums[n][2 * half + 1] * normalizer;
    if (state.sum == 0) low = high = 0;
    finite = finite && IsFinite(low) && IsFinite(high);
    StoreColumns<typename Instance::T>(args, result_row, column, low, high);
  }
  if (!finite) MarkNotFinite(args, state, result_row);
  if (MmaColumn() == 0) StoreRowState(args, row, result_row);
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
      state.sum += ShuffleXor(state.sum, 1);
      state.sum += ShuffleXor(state.sum, 2);
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
