#ifndef ATTENTION_CORE_CUDA_KERNELS_SOFTMAX_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_SOFTMAX_INL_H_

// The softmax over rows of QK that lie in memory: what stands between QK and PV
// where cuBLAS computes them and weights are wanted.

#include "core/cuda/kernels/mask-inl.h"
#include "core/cuda/kernels/philox-inl.h"
#include "core/cuda/kernels/rows-inl.h"

namespace attention::cuda {

/// A result row.
struct SoftmaxRow {
  int64_t batch;
  int64_t head;
  int64_t query;
  int64_t result_row;
  KeySpan span;
};

ATTENTION_KERNEL_CODE SoftmaxRow MakeSoftmaxRow(const AttentionArgs& args,
                                                int64_t result_row) {
  SoftmaxRow row;
  row.result_row = result_row;
  row.query = result_row % args.query_length;
  const int64_t head = result_row / args.query_length;
  row.head = head % args.query_heads;
  row.batch = head / args.query_heads;
  row.span = SpanOf(args, row.batch, row.query);
  return row;
}

/// One number of every thread of the block, brought together by `join`, alike
/// on all of them.
template <typename Join>
ATTENTION_KERNEL_CODE float JoinBlock(float value, const Join& join) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    value = join(value, ShuffleXor(value, mask));
  }
  auto* const shared = reinterpret_cast<float*>(SharedMemory());
  SyncBlock();
  if (ThreadIndex() % kWarp == 0) shared[ThreadIndex() / kWarp] = value;
  SyncBlock();
  float all = shared[0];
  for (int warp = 1; warp < kSoftmaxThreads / kWarp; ++warp) {
    all = join(all, shared[warp]);
  }
  return all;
}

struct JoinLarger {
  ATTENTION_KERNEL_CODE float operator()(float a, float b) const {
    return Larger(a, b);
  }
};
struct JoinSum {
  ATTENTION_KERNEL_CODE float operator()(float a, float b) const {
    return a + b;
  }
};

/// Of a key that the row may read.
ATTENTION_KERNEL_CODE float ScoreOfKey(const SoftmaxRowsArgs& args,
                                       const Epilogue& epilogue,
                                       const SoftmaxRow& row, int64_t key) {
  const RowMasks masks =
      MasksOf(args.problem, row.batch, row.head, row.query, key);
  const int64_t begin = (row.result_row - args.first_row) * args.score_stride;
  return FinishScore(args.problem, epilogue, masks, key,
                     args.scores[begin + key]);
}

/// Calls visit(score) for the thread's keys that the row may read.
template <typename Visit>
ATTENTION_KERNEL_CODE void ForEachScore(const SoftmaxRowsArgs& args,
                                        const Epilogue& epilogue,
                                        const SoftmaxRow& row,
                                        const Visit& visit) {
  for (int64_t key = row.span.begin + ThreadIndex(); key < row.span.end;
       key += kSoftmaxThreads) {
    visit(ScoreOfKey(args, epilogue, row, key));
  }
}

/// Keys whose dropout the block finds at once: four for each thread, as Philox
/// gives four words.
inline constexpr int kDroppedKeys = 4 * kSoftmaxThreads;

/// Shows the block which of the keys from `first` on, a multiple of four, are
/// dropped.
ATTENTION_KERNEL_CODE void ShowDropped(const DropoutArgs& dropout,
                                       const SoftmaxRow& row, int64_t first) {
  const PhiloxWords words =
      DropoutWords(dropout, row.batch, row.head, row.query,
                   first + int64_t{4} * ThreadIndex());
  uint32_t dropped = 0;
  for (int n = 0; n < 4; ++n) {
    if (words.word[n] < dropout.threshold) dropped |= 1U << n;
  }
  SyncBlock();  // nobody reads what was there
  reinterpret_cast<uint32_t*>(SharedMemory())[ThreadIndex()] = dropped;
  SyncBlock();
}

/// Whether key `n` of those is.
ATTENTION_KERNEL_CODE bool IsDropped(int n) {
  const uint32_t four = reinterpret_cast<uint32_t*>(SharedMemory())[n / 4];
  return (four >> (n % 4) & 1U) != 0;
}

/// Stores a key's weight before or after dropout, and its probability.
ATTENTION_KERNEL_CODE void StoreSoftmax(const SoftmaxRowsArgs& args,
                                        const SoftmaxRow& row, int64_t key,
                                        float weight, bool drops) {
  const AttentionArgs& problem = args.problem;
  float kept = weight;
  if (problem.dropout.active != 0) {
    kept = weight * (drops ? 0.0F : problem.dropout.kept);
  }
  if (problem.weights != nullptr) {
    problem.weights[row.result_row * problem.key_length + key] =
        problem.weights_after_dropout != 0 ? kept : weight;
  }
  const int64_t at =
      (row.result_row - args.first_row) * args.probability_stride + key;
  if (args.probability_type == Element::kFloat16) {
    kept = weight * (drops ? 0.0F : kHalfProbability);
  }
  StoreFloat(args.probabilities, args.probability_type, at, kept);
}

/// The block has one row. A thread reads a score before it writes what may lie
/// in its place.
ATTENTION_KERNEL_CODE void SoftmaxRows(const SoftmaxRowsArgs& args,
                                       int64_t block) {
  const AttentionArgs& problem = args.problem;
  const SoftmaxRow row = MakeSoftmaxRow(problem, args.first_row + block);
  const Epilogue epilogue = MakeEpilogue(problem);
  RowState state = {-Infinity(), 0.0F};
  ForEachScore(args, epilogue, row,
               [&](float score) { state.max = Larger(state.max, score); });
  state.max = JoinBlock(state.max, JoinLarger());
  const float base = Base(state.max);
  ForEachScore(args, epilogue, row,
               [&](float score) { state.sum += Exp(score - base); });
  state.sum = JoinBlock(state.sum, JoinSum());
  const FinishedRow finished = FinishRow(problem, state, row.result_row);
  state = finished.state;
  const float inverse = state.sum == 0 ? 0.0F : 1 / state.sum;
  // Of keys that take no part, in a row that is NaN too.
  const float left_out = state.sum == 0 ? EmptyRowWeight(problem) : 0.0F;
  for (int64_t first = 0; first < problem.key_length; first += kDroppedKeys) {
    const bool weighs =
        left_out != 0 ||
        (first < row.span.end && first + kDroppedKeys > row.span.begin);
    const bool drops = problem.dropout.active != 0 && weighs;
    if (drops) ShowDropped(problem.dropout, row, first);
    for (int n = ThreadIndex(); n < kDroppedKeys; n += kSoftmaxThreads) {
      const int64_t key = first + n;
      if (key >= problem.key_length) break;
      float weight = left_out;
      if (key >= row.span.begin && key < row.span.end) {
        const float score = ScoreOfKey(args, epilogue, row, key);
        if (score != -Infinity()) weight = Exp(score - base) * inverse;
      }
      StoreSoftmax(args, row, key, weight, drops && IsDropped(n));
    }
  }
  if (ThreadIndex() == 0) StoreRowState(problem, finished, row.result_row);
}

/// What makes an output of PV.
ATTENTION_KERNEL_CODE float PvFactor(const FinishOutputArgs& args) {
  if (args.probability_type != Element::kFloat16) return 1;
  const DropoutArgs& dropout = args.problem.dropout;
  return (dropout.active != 0 ? dropout.kept : 1.0F) / kHalfProbability;
}

/// A warp has one row.
ATTENTION_KERNEL_CODE void FinishOutput(const FinishOutputArgs& args,
                                        int64_t block) {
  const int64_t row = block * (kFinishThreads / kWarp) + ThreadIndex() / kWarp;
  if (row >= args.rows) return;
  const int64_t width = args.problem.value.width;
  const int64_t result_row = args.first_row + row;
  const float factor = PvFactor(args);
  bool finite = true;
  for (int64_t i = ThreadIndex() % kWarp; i < width; i += kWarp) {
    const float value = args.pv[row * width + i] * factor;
    finite = finite && IsFinite(value);
    StoreOutput(args.problem, result_row * width + i, value);
  }
  if (!finite && args.problem.marks[result_row] == RowMark::kNone) {
    MarkRow(args.problem, result_row, RowMark::kNotFinite);
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_SOFTMAX_INL_H_
