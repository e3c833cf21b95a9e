#ifndef ATTENTION_CORE_CUDA_KERNELS_MMA_SOFTMAX_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_MMA_SOFTMAX_INL_H_

// From products in registers to weights, row by row.

#include "core/cuda/kernels/mma_options-inl.h"

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

/// A finite factor of products as their magnitudes have it. Not 0, which would
/// make NaN of the -inf of keys that take no part: what such a small factor
/// makes of finite products does not matter.
ATTENTION_KERNEL_CODE float MmaFactor(double factor) {
  constexpr float kSmallest = 0x1p-149F;
  return Larger(fabsf(LimitToFloat(factor)), kSmallest);
}
/// What products are multiplied by to be scores.
ATTENTION_KERNEL_CODE float ScoreFactor(const AttentionArgs& args) {
  return MmaFactor(args.factor);
}
/// And to be exponents of 2.
ATTENTION_KERNEL_CODE float ExponentFactor(const AttentionArgs& args) {
  return MmaFactor(args.factor * kWideLog2E);
}

/// Whether products become scores before they become exponents.
ATTENTION_KERNEL_CODE bool HasScoreOptions(const AttentionArgs& args) {
  return args.softcap != 0 || args.alibi_slopes != nullptr ||
         args.bias.data != nullptr;
}

/// What rows' maxima, of products where no option needs scores, are multiplied
/// by to be scores.
template <bool kOptions>
ATTENTION_KERNEL_CODE float MaxFactor(const AttentionArgs& args) {
  return kOptions && HasScoreOptions(args) ? 1.0F : ScoreFactor(args);
}

/// A row whose maximum becomes a score by `factor`. Scores beyond FP32's range
/// are infinite: where all are -inf no key takes part, and +inf gives NaN.
ATTENTION_KERNEL_CODE RowState WithScore(const RowState& row, float factor) {
  RowState scored = {row.max * factor, row.sum};
  if (IsFinite(row.max) && !IsFinite(scored.max)) {
    scored.sum = scored.max < 0 ? 0.0F : scored.max * 0.0F;
  }
  return scored;
}

/// What a row's exponentials are taken relative to, and what its sums so far
/// are to be multiplied by.
struct Rescaling {
  float base;
  float scale;
};

/// Brings a row's maximum up to `largest`; `factor` times a difference of
/// either is an exponent of 2.
ATTENTION_KERNEL_CODE Rescaling RaiseMax(float largest, float factor,
                                         RowState& row) {
  const float max = Larger(row.max, largest);
  const float base = Base(max);
  const float scale = FastExp2(Multiply(row.max - base, factor));
  row.max = max;
  return {base, scale};
}

/// Whether exponents may be computed as one product and difference: up to this
/// exponent of the largest score the rounding of a product makes little of
/// them; beyond, the largest score has to give exactly 0.
ATTENTION_KERNEL_CODE bool FusesExponents(float base) {
  constexpr float kLargestFused = 0x1p20F;
  return base < kLargestFused && base > -kLargestFused;
}

/// What one thread knows of its rows: sums of its own keys.
template <typename Instance>
struct MmaState {
  RowState rows[Instance::kTiles][2];
};

/// Keys of a tile that lie outside a row's become -inf; `first_key` is the
/// thread's first one.
template <typename Instance>
ATTENTION_KERNEL_CODE void LimitRow(const RowInfo& row, int64_t first_key,
                                    int half,
                                    MmaSums<Instance::kWarpKeys / 8>& scores) {
  constexpr int kThreadKeys = Instance::kThreadKeys;
  const auto within = [first_key](int64_t key) {
    return static_cast<int>(Least(Most(key - first_key, 0), kThreadKeys));
  };
  const int begin = within(row.begin);
  const int end = within(row.end);
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < kThreadKeys; ++n) {
    float& score = ScoreOf<Instance>(scores, half, n);
    score = n >= begin && n < end ? score : -Infinity();
  }
}

/// Replaces one row's scores by weight(score); returns their sum.
template <typename Instance, typename Weight>
ATTENTION_KERNEL_CODE float WeightMmaRow(
    int half, const Weight& weight, MmaSums<Instance::kWarpKeys / 8>& scores) {
  constexpr float kScale = kWeightScale<typename Instance::T>;
  float sum = 0;
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kWarpKeys / 8; ++n) {
    ATTENTION_UNROLL_ALL
    for (int i = 0; i < 2; ++i) {
      float& score = scores[n][2 * half + i];
      score = kScale * FastExp2(weight(score));
      sum += score;
    }
  }
  return sum;
}

/// Makes weights of one row's scores, which times `factor` are exponents of 2,
/// and brings its sums to the new maximum.
template <typename Instance>
ATTENTION_KERNEL_CODE void AddMmaRow(float factor, int half, RowState& row,
                                     MmaSums<Instance::kWarpKeys / 8>& scores,
                                     MmaSums<Instance::kWidth / 8>& sums) {
  float largest = -Infinity();
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kWarpKeys / 8; ++n) {
    largest =
        Larger(largest, Larger(scores[n][2 * half], scores[n][2 * half + 1]));
  }
  const Rescaling now = RaiseMax(LargestOfMmaRow(largest), factor, row);
  const float base = now.base;
  const float exponent = Multiply(base, factor);
  const float sum =
      FusesExponents(exponent)
          ? WeightMmaRow<Instance>(
                half, [=](float s) { return Fma(s, factor, -exponent); },
                scores)
          : WeightMmaRow<Instance>(
                half, [=](float s) { return Multiply(s - base, factor); },
                scores);
  row.sum = Fma(row.sum, now.scale, sum);
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kWidth / 8; ++n) {
    sums[n][2 * half] *= now.scale;
    sums[n][2 * half + 1] *= now.scale;
  }
}

template <typename Instance>
struct MmaRegisters {
  MmaState<Instance> state;
  MmaSums<Instance::kWidth / 8> sums[Instance::kTiles];
};

/// Calls visit(row of the thread's 2 kTiles) for each.
template <typename Instance, typename Visit>
ATTENTION_KERNEL_CODE void ForEachMmaRow(const Visit& visit) {
  ATTENTION_UNROLL_ALL
  for (int row = 0; row < 2 * Instance::kTiles; ++row) visit(row);
}

template <typename Instance>
ATTENTION_KERNEL_CODE const RowInfo& InfoOf(const MmaMemory<Instance>& memory,
                                            int row) {
  return memory.rows[Opaque(MmaRow<Instance>(row / 2, row % 2))];
}
template <typename Instance>
ATTENTION_KERNEL_CODE const MmaRowOptions& OptionsOf(
    const MmaMemory<Instance>& memory, int row) {
  return memory.options[Opaque(MmaRow<Instance>(row / 2, row % 2))];
}

/// Makes scores of products, with softcap, ALiBi and bias.
template <typename Instance>
ATTENTION_KERNEL_CODE void FinishScores(
    const AttentionArgs& args, const MmaMemory<Instance>& memory, int tile,
    MmaSums<Instance::kWarpKeys / 8> (&scores)[Instance::kTiles]) {
  float factor = memory.source->factor;
  if (args.softcap != 0) {
    const float cap = memory.source->cap;
    const float steepness = memory.source->cap_steepness;
    ForEachMmaRow<Instance>([&](int row) {
      ATTENTION_UNROLL_ALL
      for (int n = 0; n < Instance::kThreadKeys; ++n) {
        float& score = ScoreOf<Instance>(scores[row / 2], row % 2, n);
        score = CappedScore(Multiply(score, factor), cap, steepness);
      }
    });
    factor = 1;
  }
  if (args.alibi_slopes != nullptr) {
    const auto key = static_cast<float>(int64_t{tile} * Instance::kKeys +
                                        MmaKey<Instance>());
    ForEachMmaRow<Instance>([&](int row) {
      AddAlibiToRow<Instance>(OptionsOf<Instance>(memory, row), key, row % 2,
                              factor, scores[row / 2]);
    });
    factor = 1;
  }
  if (args.bias.data == nullptr) return;
  ForEachMmaRow<Instance>([&](int row) {
    const MmaRowOptions& options = OptionsOf<Instance>(memory, row);
    if (args.bias.type == Element::kFloat32) {
      AddBiasToRow<Instance, float>(args, memory, options, row, factor,
                                    scores[row / 2]);
    } else {
      AddBiasToRow<Instance, typename Instance::T>(args, memory, options, row,
                                                   factor, scores[row / 2]);
    }
  });
}

/// From a tile's products, which times `factor` are exponents of 2, to weights;
/// `inside` says that every row reads all of its keys.
template <typename Instance>
ATTENTION_KERNEL_CODE void AddMmaTile(
    const AttentionArgs& args, const MmaMemory<Instance>& memory, int tile,
    bool inside, float factor,
    MmaSums<Instance::kWarpKeys / 8> (&scores)[Instance::kTiles],
    MmaRegisters<Instance>& registers) {
  const auto first_key = [&memory, tile] {
    return memory.source->first_key + int64_t{tile} * Instance::kKeys +
           MmaKey<Instance>();
  };
  if constexpr (Instance::kOptions) {
    if (HasScoreOptions(args)) {
      FinishScores<Instance>(args, memory, tile, scores);
      factor = kLog2E;
    }
  }
  if (!inside) {
    ForEachMmaRow<Instance>([&](int row) {
      LimitRow<Instance>(InfoOf<Instance>(memory, row), first_key(), row % 2,
                         scores[row / 2]);
    });
  }
  if constexpr (Instance::kOptions) {
    if (args.attend_mask.data != nullptr) {
      ForEachMmaRow<Instance>([&](int row) {
        MaskRow<Instance>(args, memory, OptionsOf<Instance>(memory, row), row,
                          scores[row / 2]);
      });
    }
  }
  ForEachMmaRow<Instance>([&](int row) {
    AddMmaRow<Instance>(factor, row % 2, registers.state.rows[row / 2][row % 2],
                        scores[row / 2], registers.sums[row / 2]);
  });
  if constexpr (Instance::kOptions) {
    if (args.dropout.active != 0) {
      ForEachMmaRow<Instance>([&](int row) {
        DropFromRow<Instance>(args.dropout, InfoOf<Instance>(memory, row),
                              first_key(), row % 2, scores[row / 2]);
      });
    }
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_MMA_SOFTMAX_INL_H_
