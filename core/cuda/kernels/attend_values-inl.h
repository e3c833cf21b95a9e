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
                                              const AttendMemory&, Scores&) {}
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

/// Columns of the values that a thread sums: 4 of each group of 64.
inline constexpr int kColumnGroup = 64;
template <int kColumnGroups>
using Columns = float[kTileRows][4 * kColumnGroups];

/// Brings kAttendDepth rows of values from row `first` on, `count` of them
/// there and others 0.
template <int kColumnGroups, typename T, typename Head>
ATTENTION_KERNEL_CODE void LoadValues(const Head& values, int64_t first,
                                      int64_t count, int64_t first_column,
                                      float* to) {
  constexpr int kWidth = kColumnGroups * kColumnGroup;
  constexpr int kPerRow = kWidth / kStretch;
  for (int i = ThreadIndex(); i < kAttendDepth * kPerRow; i += kAttendThreads) {
    const int row = i / kPerRow;
    const int column = i % kPerRow * kStretch;
    T numbers[kStretch] = {};
    if (row < count && first_column + column < values.width) {
      LoadStretch(values.template At<T>(first + row), first_column + column,
                  values.width, numbers);
    }
    for (int half = 0; half < 2; ++half) {
      Float4 wide;
      for (int n = 0; n < 4; ++n) wide.at[n] = Widen(numbers[4 * half + n]);
      const int at = row * kWidth + column + 4 * half;
      StoreFloat4(to + at, wide);
    }
  }
}

template <int kColumnGroups, typename Head>
ATTENTION_KERNEL_CODE void LoadValuesOf(Element type, const Head& values,
                                        int64_t first, int64_t count,
                                        int64_t first_column, float* to) {
  WithElements(values.data, type, [&]<typename T>(const T*) {
    LoadValues<kColumnGroups, T>(values, first, count, first_column, to);
  });
}

/// sums += weights * values for the kAttendDepth keys from `first` on.
template <typename Accumulation, int kColumnGroups>
ATTENTION_KERNEL_CODE void AddWeighted(const AttendMemory& memory, int first,
                                       Columns<kColumnGroups>& sums) {
  constexpr int kWidth = kColumnGroups * kColumnGroup;
  ATTENTION_UNROLL(8)
  for (int j = 0; j < kAttendDepth; ++j) {
    const Float4 weights =
        LoadFloat4(memory.weights + (first + j) * kAttendPitch + ThreadRow());
    for (int group = 0; group < kColumnGroups; ++group) {
      const int at = j * kWidth + group * kColumnGroup + ThreadKey();
      const Float4 values = LoadFloat4(memory.values + at);
      ATTENTION_UNROLL_ALL
      for (int m = 0; m < kTileRows; ++m) {
        for (int n = 0; n < 4; ++n) {
          float& sum = sums[m][4 * group + n];
          sum = Accumulation::Add(weights.at[m], values.at[n], sum);
        }
      }
    }
  }
}

template <typename Accumulation, int kColumnGroups, bool kPaged>
ATTENTION_KERNEL_CODE void AddValues(const AttentionArgs& args,
                                     int64_t first_key,
                                     const AttendMemory& memory,
                                     Columns<kColumnGroups>& sums) {
  const auto count =
      static_cast<int>(Least(kAttendKeys, args.key_length - first_key));
  for (int first = 0; first < count; first += kAttendDepth) {
    SyncBlock();
    LoadValuesOf<kColumnGroups>(args.value.type,
                                HeadRowsOf<kPaged>(args.value, args.value_pages,
                                                   memory.source->value_begin),
                                first_key + first, count - first,
                                memory.source->strip * kAttendValues,
                                memory.values);
    SyncBlock();
    AddWeighted<Accumulation, kColumnGroups>(memory, first, sums);
  }
}

/// Calls visit(column of the output, the sum's index) for the thread's columns.
template <int kColumnGroups, typename Visit>
ATTENTION_KERNEL_CODE void ForEachColumn(const AttentionArgs& args,
                                         int64_t strip, const Visit& visit) {
  for (int group = 0; group < kColumnGroups; ++group) {
    for (int n = 0; n < 4; ++n) {
      const int within = group * kColumnGroup + ThreadKey() + n;
      const int64_t column = strip * kAttendValues + within;
      if (column < args.value.width) visit(column, 4 * group + n);
    }
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_ATTEND_VALUES_INL_H_
