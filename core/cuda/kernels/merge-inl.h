#ifndef ATTENTION_CORE_CUDA_KERNELS_MERGE_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_MERGE_INL_H_

// What blocks found out about splits of the keys becomes one result: the
// softmax states of core/softmax_state.h, a split to each lane of a warp.

#include "core/cuda/kernels/rows-inl.h"

namespace attention::cuda {

/// The state of all keys of a row: the warp, whose lanes read a split each.
ATTENTION_KERNEL_CODE RowState MergeStates(const AttentionArgs& args,
                                           int64_t row) {
  const int lane = ThreadIndex() % kWarp;
  RowState all = {-Infinity(), 0.0F};
  for (int64_t split = lane; split < args.splits; split += kWarp) {
    all.max = Larger(all.max, PartialOf(args, split, row)[0]);
  }
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    all.max = Larger(all.max, ShuffleXor(all.max, mask));
  }
  const float base = Base(all.max);
  for (int64_t split = lane; split < args.splits; split += kWarp) {
    const float* const from = PartialOf(args, split, row);
    // A NaN sum counts, whatever its maximum.
    if (from[1] != 0) all.sum += from[1] * Exp(from[0] - base);
  }
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    all.sum += ShuffleXor(all.sum, mask);
  }
  return all;
}

/// A warp merges a row.
ATTENTION_KERNEL_CODE void Merge(const AttentionArgs& args, int64_t block) {
  const int lane = ThreadIndex() % kWarp;
  const int64_t row = block * (kMergeThreads / kWarp) + ThreadIndex() / kWarp;
  if (row >= ResultRows(args)) return;
  const FinishedRow finished = FinishRow(args, MergeStates(args, row), row);
  const RowState& state = finished.state;
  const float base = Base(state.max);
  const float normalizer = Normalizer(args, state.sum);
  bool finite = true;
  for (int64_t column = lane; column < args.value.width; column += kWarp) {
    float sum = 0;
    // Several at a time are on their way from memory.
    ATTENTION_UNROLL(4)
    for (int64_t split = 0; split < args.splits; ++split) {
      const float* const from = PartialOf(args, split, row);
      if (from[1] == 0) continue;
      sum = Fma(from[kPartialValues + column], Exp(from[0] - base), sum);
    }
    const float result = state.sum == 0 ? 0.0F : sum * normalizer;
    finite = finite && IsFinite(result);
    StoreOutput(args, row * args.value.width + column, result);
  }
  if (!finite) MarkNotFinite(args, state, row);
  if (lane == 0) StoreRowState(args, finished, row);
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_MERGE_INL_H_
