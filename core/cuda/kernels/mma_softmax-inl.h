#ifndef ATTENTION_CORE_CUDA_KERNELS_MMA_SOFTMAX_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_MMA_SOFTMAX_INL_H_

// From products in registers to weights, row by row.

#include "core/cuda/kernels/mma_tiles-inl.h"

namespace attention::cuda {

/// FP16 weights are taken so many times as large. Not by a larger exponent: the
/// argument of the exponential, which is near 0 for the keys that count, would
/// lose bits to it.
template <typename T>
inline constexpr float kWeightScale = 1;
template <>
inline constexpr float kWeightScale<Half> = kHalfProbability;

/// The largest of the 4 threads of a row.
ATTENTION_KERNEL_CODE float LargestOfMmaRow(float value) {
  value = Larger(value, ShuffleXor(value, 1));
  return Larger(value, ShuffleXor(value, 2));
}

/// What one thread knows of its rows: sums of its own keys.
template <typename Instance>
struct MmaState {
  RowState rows[Instance::kTiles][2];
};

/// Keys of a tile that lie outside a row's become -inf.
template <typename Instance>
ATTENTION_KERNEL_CODE void LimitRow(const RowInfo& row, int64_t first_key,
                                    int half,
                                    MmaSums<Instance::kKeys / 8>& scores) {
  const auto within = [first_key](int64_t key) {
    const int64_t at = Most(key - first_key, 0);
    return static_cast<int>(Least(at, Instance::kKeys)) - MmaColumn();
  };
  const int begin = within(row.begin);
  const int end = within(row.end);
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kKeys / 8; ++n) {
    for (int i = 0; i < 2; ++i) {
      const int key = n * 8 + i;
      float& score = scores[n][2 * half + i];
      score = key >= begin && key < end ? score : -Infinity();
    }
  }
}

/// Everything that is not plain: scores are finished one by one, and dropped
/// keys are remembered as a bit each.
template <typename Instance>
ATTENTION_KERNEL_CODE uint32_t FinishMmaRow(
    const AttentionArgs& args, const Epilogue& epilogue, const RowInfo& row,
    int64_t first_key, int half, MmaSums<Instance::kKeys / 8>& scores) {
  const RowMasks masks =
      MasksOf(args, row.batch, row.head, row.query, first_key);
  uint32_t dropped = 0;
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kKeys / 8; ++n) {
    const int column = n * 8 + MmaColumn();
    const int64_t key = first_key + column;
    PhiloxWords words = {};
    if (args.dropout.active != 0) {
      words = DropoutWords(args.dropout, row.batch, row.head, row.query, key);
    }
    ATTENTION_UNROLL_ALL
    for (int i = 0; i < 2; ++i) {
      float& score = scores[n][2 * half + i];
      if (key + i < row.begin || key + i >= row.end) {
        score = -Infinity();
        continue;
      }
      score = FinishScore(args, epilogue, masks, key + i, score);
      const uint32_t word =
          MmaColumn() % 4 == 0 ? words.word[i] : words.word[2 + i];
      const bool drops =
          args.dropout.active != 0 && word < args.dropout.threshold;
      dropped |= drops ? 1U << (2 * n + i) : 0U;
    }
  }
  return dropped;
}

/// Replaces one row's scores by weight(score); returns their sum.
template <typename Instance, typename Weight>
ATTENTION_KERNEL_CODE float WeightMmaRow(int half, const Weight& weight,
                                         MmaSums<Instance::kKeys / 8>& scores) {
  constexpr float kScale = kWeightScale<typename Instance::T>;
  float sum = 0;
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kKeys / 8; ++n) {
    ATTENTION_UNROLL_ALL
    for (int i = 0; i < 2; ++i) {
      float& score = scores[n][2 * half + i];
      score = kScale * FastExp2(weight(score));
      sum += score;
    }
  }
  return sum;
}

/// Makes weights of one row's scores (not yet multiplied by `factor`), and
/// brings its sums to the new maximum.
template <typename Instance>
ATTENTION_KERNEL_CODE void AddMmaRow(float factor, int half, RowState& row,
                                     MmaSums<Instance::kKeys / 8>& scores,
                                     MmaSums<Instance::kWidth / 8>& sums) {
  // Up to here the rounding of a product makes little of an exponent; beyond,
  // the largest score has to give exactly 0.
  constexpr float kLargestFused = 0x1p20F;
  float largest = -Infinity();
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kKeys / 8; ++n) {
    largest =
        Larger(largest, Larger(scores[n][2 * half], scores[n][2 * half + 1]));
  }
  const float max = Larger(row.max, Multiply(LargestOfMmaRow(largest), factor));
  const float base = Base(max);
  const float scale = FastExp2(row.max - base);
  const float sum =
      base < kLargestFused && base > -kLargestFused
          ? WeightMmaRow<Instance>(
                half, [=](float s) { return Fma(s, factor, -base); }, scores)
          : WeightMmaRow<Instance>(
                half, [=](float s) { return Multiply(s, factor) - base; },
                scores);
  row.max = max;
  row.sum = Fma(row.sum, scale, sum);
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kWidth / 8; ++n) {
    sums[n][2 * half] *= scale;
    sums[n][2 * half + 1] *= scale;
  }
}

template <typename Instance>
struct MmaRegisters {
  MmaState<Instance> state;
  MmaSums<Instance::kWidth / 8> sums[Instance::kTiles];
};

/// From a tile's products to weights; `inside` says that every row reads all of
/// its keys.
template <typename Instance>
ATTENTION_KERNEL_CODE void AddMmaTile(
    const AttentionArgs& args, const Epilogue& epilogue, const RowInfo* rows,
    bool inside, int64_t first_key,
    MmaSums<Instance::kKeys / 8> (&scores)[Instance::kTiles],
    MmaRegisters<Instance>& registers) {
  ATTENTION_UNROLL_ALL
  for (int tile = 0; tile < Instance::kTiles; ++tile) {
    ATTENTION_UNROLL_ALL
    for (int half = 0; half < 2; ++half) {
      RowState& state = registers.state.rows[tile][half];
      const RowInfo& row = rows[Opaque(MmaRow<Instance>(tile, half))];
      if constexpr (Instance::kPlain) {
        if (!inside) LimitRow<Instance>(row, first_key, half, scores[tile]);
        AddMmaRow<Instance>(epilogue.factor, half, state, scores[tile],
                            registers.sums[tile]);
      } else {
        const uint32_t dropped = FinishMmaRow<Instance>(
            args, epilogue, row, first_key, half, scores[tile]);
        AddMmaRow<Instance>(1.0F, half, state, scores[tile],
                            registers.sums[tile]);
        ATTENTION_UNROLL_ALL
        for (int n = 0; n < 2 * (Instance::kKeys / 8); ++n) {
          float& weight = scores[tile][n / 2][2 * half + n % 2];
          weight = (dropped >> n & 1U) != 0 ? 0.0F : weight;
        }
      }
    }
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_MMA_SOFTMAX_INL_H_
