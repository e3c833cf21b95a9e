#ifndef ATTENTION_CORE_CUDA_KERNELS_ATTEND_VALUES_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_ATTEND_VALUES_INL_H_

// Weights that the block was shown, times values.

#include "core/cuda/kernels/attend_softmax-inl.h"

namespace attention::cuda {

/// The weight of a key that takes no part in a row, or was dropped: a 0 that
/// MaskedValues can tell from a weight that underflowed.
inline constexpr float kLeftOut = -0.0F;

/// How weighted values are added up: in `attend`, without a look at them.
struct Plain {
  ATTENTION_KERNEL_CODE static void SetScores(const AttentionArgs&, int64_t,
                                              const AttendMemory&,
                                              const auto& /*scores*/) {}
  ATTENTION_KERNEL_CODE static float WeightOf(float score, float base) {
    return Exp(score - base);
  }
  ATTENTION_KERNEL_CODE static float Rescale(float sum, float factor) {
    return sum * factor;
  }
  ATTENTION_KERNEL_CODE static float Add(float weight, float value, float sum) {
    return Fma(weight, value, sum);
  }
};

/// Of a thread's rows, 4 columns of each group of 64.
template <int kColumnGroups, int kSide>
using Columns = float[kSide * kQuad][kColumnGroups * kQuad];

/// sums += weights * values for kCount keys, whose weights are those of keys
/// first ... of what the block was shown.
template <typename Accumulation, int kCount, int kColumnGroups, int kSide>
ATTENTION_KERNEL_CODE void AddWeighted(const AttendMemory& memory,
                                       const float* values, int first,
                                       Columns<kColumnGroups, kSide>& sums) {
  constexpr int kWidth = kColumnGroups * kColumnGroup;
  const float* const weights_at =
      memory.weights + SpreadRow(first) * AttendPitch(kSide) + TileRow(0);
  const float* const values_at = values + TileKey(0);
  ATTENTION_UNROLL(8)
  for (int j = 0; j < kCount; ++j) {
    Float4 w[kSide];
    Float4 v[kColumnGroups];
    for (int m = 0; m < kSide; ++m) {
      w[m] = LoadFloat4(weights_at + SpreadRow(j) * AttendPitch(kSide) +
                        TileIndex(m * kQuad));
    }
    for (int n = 0; n < kColumnGroups; ++n) {
      v[n] = LoadFloat4(values_at +
                        static_cast<int64_t>(j * kWidth + n * kColumnGroup));
    }
    ATTENTION_UNROLL_ALL
    for (int m = 0; m < kSide * kQuad; ++m) {
      for (int n = 0; n < kColumnGroups * kQuad; ++n) {
        sums[m][n] = Accumulation::Add(w[m / kQuad].at[m % kQuad],
                                       v[n / kQuad].at[n % kQuad], sums[m][n]);
      }
    }
  }
}

/// Shows the block its tile's weights, and adds the values that are brought
/// next.
template <typename Accumulation, int kColumnGroups, int kSide,
          typename AnyStages>
ATTENTION_KERNEL_CODE void AddValues(const AttentionArgs& args,
                                     int64_t first_key,
                                     const AttendMemory& memory,
                                     AnyStages& stages,
                                     const Scores<kSide>& weights,
                                     Columns<kColumnGroups, kSide>& sums) {
  constexpr int kCount = AnyStages::kValueKeys;
  constexpr int kKeys = kAttendKeys;
  const auto count = static_cast<int>(
      Least(int64_t{kSide} * kKeys, args.key_length - first_key));
  for (int first = 0; first < count; first += kCount) {
    // Others may still read the first half. What the block was shown of the
    // tile before it has read: it has met since.
    if (first == kKeys) SyncBlock();
    ATTENTION_UNROLL_ALL
    for (int part = 0; part < kSide; ++part) {
      if (first == part * kKeys) ShowWeights<kSide>(memory, part, weights);
    }
    AddWeighted<Accumulation, kCount, kColumnGroups, kSide>(
        memory, stages.Next(), first % kKeys, sums);
  }
}

/// Calls visit(column of the output, the sum's index) for the thread's columns.
template <int kColumnGroups, typename Visit>
ATTENTION_KERNEL_CODE void ForEachColumn(const AttentionArgs& args,
                                         int64_t strip, const Visit& visit) {
  for (int n = 0; n < kColumnGroups * kQuad; ++n) {
    const int64_t column = strip * kAttendValues + TileKey(n);
    if (column < args.value.width) visit(column, n);
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_ATTEND_VALUES_INL_H_
