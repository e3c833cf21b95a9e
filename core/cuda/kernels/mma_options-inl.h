#ifndef ATTENTION_CORE_CUDA_KERNELS_MMA_OPTIONS_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_MMA_OPTIONS_INL_H_

// Mask, bias, softcap, ALiBi and dropout on scores in registers. Each is a pass
// over a row's scores of a tile, which a problem without it branches around.
// Masks and biases are copied to shared memory beside the values, each element
// by the thread that uses it.

#include "core/cuda/kernels/mask-inl.h"
#include "core/cuda/kernels/mma_tiles-inl.h"
#include "core/cuda/kernels/philox-inl.h"

namespace attention::cuda {

/// A thread's elements of one row and tile as they are copied, in units.
template <typename Instance, typename Number>
struct MmaElements {
  static constexpr int kBytes =
      Instance::kThreadKeys * static_cast<int>(sizeof(Number));
  static constexpr int kUnit = kBytes < 16 ? kBytes : 16;
  static constexpr int kUnits = kBytes / kUnit;
  static constexpr int kKeysOfUnit = Instance::kThreadKeys / kUnits;
  struct alignas(kUnit) Unit {
    uint32_t words[kUnit / 4];
  };

  Unit* of_thread;

  ATTENTION_KERNEL_CODE explicit MmaElements(std::byte* data)
      : of_thread(reinterpret_cast<Unit*>(data) + ThreadIndex()) {}
  /// `row` of the thread's 2 kTiles rows.
  ATTENTION_KERNEL_CODE Unit* At(int row, int unit) const {
    return of_thread + (row * kUnits + unit) * kMmaThreads;
  }
};

/// Element `n` of those that begin at `words`.
template <typename Number>
ATTENTION_KERNEL_CODE float WidenAt(const uint32_t* words, int n);
template <>
ATTENTION_KERNEL_CODE float WidenAt<float>(const uint32_t* words, int n) {
  return BitsToFloat(words[n]);
}
template <>
ATTENTION_KERNEL_CODE float WidenAt<Half>(const uint32_t* words, int n) {
  return Widen(Half{static_cast<uint16_t>(words[n / 2] >> (n % 2 * 16))});
}
template <>
ATTENTION_KERNEL_CODE float WidenAt<Brain>(const uint32_t* words, int n) {
  const uint32_t word = words[n / 2];
  return BitsToFloat(n % 2 == 0 ? word << 16 : word & 0xFFFF0000U);
}

/// Where the bias of a tile lies, behind the mask's.
template <typename Instance>
ATTENTION_KERNEL_CODE std::byte* BiasElements(
    const AttentionArgs& args, const MmaMemory<Instance>& memory) {
  const bool masks = args.attend_mask.data != nullptr;
  return memory.elements + (masks ? Instance::kRows * Instance::kKeys : 0);
}

/// What the options need of the block's rows, after FillRows(); it is there
/// after the next SyncBlock().
template <typename Instance>
ATTENTION_KERNEL_CODE void FillRowOptions(const AttentionArgs& args,
                                          const MmaMemory<Instance>& memory,
                                          int64_t first_key) {
  if (ThreadIndex() >= Instance::kRows) return;
  const RowInfo& row = memory.rows[ThreadIndex()];
  // Where there is no such row, another one's will do.
  const RowMasks masks =
      MasksOf(args, row.batch, row.head, Most(row.query, 0), first_key);
  memory.options[ThreadIndex()] = {
      masks.mask + first_key * args.attend_mask.stride_j,
      masks.bias + first_key * args.bias.stride_j, masks.slope, masks.position};
}

/// Starts to bring the elements of the thread's rows, of `count` keys from its
/// first one on; Begin(row's options): of the row's first key of the block.
template <typename Instance, typename Number, typename Begin>
ATTENTION_KERNEL_CODE void StartElements(const Broadcast& from, int64_t key,
                                         int64_t count, std::byte* to,
                                         const MmaMemory<Instance>& memory,
                                         const Begin& begin) {
  using Elements = MmaElements<Instance, Number>;
  const Elements elements(to);
  const auto* const data = static_cast<const Number*>(from.data);
  ATTENTION_UNROLL_ALL
  for (int row = 0; row < 2 * Instance::kTiles; ++row) {
    const Number* const at =
        data + begin(memory.options[MmaRow<Instance>(row / 2, row % 2)]) + key;
    ATTENTION_UNROLL_ALL
    for (int unit = 0; unit < Elements::kUnits; ++unit) {
      const int first = unit * Elements::kKeysOfUnit;
      // Of what is not there, no byte is read.
      CopyAsync<Elements::kUnit>(elements.At(row, unit), at + first,
                                 first < count);
    }
  }
}

/// Starts to bring a tile of mask and bias. Those of which a row has one for
/// all keys are loaded where they are needed.
template <typename Instance>
ATTENTION_KERNEL_CODE void StartMaskAndBias(const AttentionArgs& args,
                                            const MmaSource& source, int tile,
                                            const MmaMemory<Instance>& memory) {
  const int64_t key = int64_t{tile} * Instance::kKeys + MmaKey<Instance>();
  const int64_t count = args.key_length - source.first_key - key;
  if (args.attend_mask.data != nullptr && args.attend_mask.stride_j != 0) {
    StartElements<Instance, uint8_t>(
        args.attend_mask, key, count, memory.elements, memory,
        [](const MmaRowOptions& row) { return row.mask; });
  }
  if (args.bias.data != nullptr && args.bias.stride_j != 0) {
    const auto begin = [](const MmaRowOptions& row) { return row.bias; };
    std::byte* const to = BiasElements<Instance>(args, memory);
    if (args.bias.type == Element::kFloat32) {
      StartElements<Instance, float>(args.bias, key, count, to, memory, begin);
    } else {
      StartElements<Instance, typename Instance::T>(args.bias, key, count, to,
                                                    memory, begin);
    }
  }
}

/// The elements that a thread has brought of one row. Calls visit(n, words,
/// m) for key n of the thread's: element m of `words`.
template <typename Instance, typename Number, typename Visit>
ATTENTION_KERNEL_CODE void ForEachElement(const Broadcast& from, int64_t begin,
                                          std::byte* brought, int row,
                                          const Visit& visit) {
  using Elements = MmaElements<Instance, Number>;
  const Elements elements(brought);
  ATTENTION_UNROLL_ALL
  for (int unit = 0; unit < Elements::kUnits; ++unit) {
    typename Elements::Unit numbers;
    if (from.stride_j != 0) {
      numbers = *elements.At(row, unit);
    } else {
      Number one[4];
      for (Number& same : one) {
        same = static_cast<const Number*>(from.data)[begin];
      }
      ATTENTION_UNROLL_ALL
      for (uint32_t& word : numbers.words) __builtin_memcpy(&word, one, 4);
    }
    ATTENTION_UNROLL_ALL
    for (int n = 0; n < Elements::kKeysOfUnit; ++n) {
      visit(unit * Elements::kKeysOfUnit + n, numbers.words, n);
    }
  }
}

/// A row's scores of a tile, of which the thread has kThreadKeys.
template <typename Instance>
ATTENTION_KERNEL_CODE float& ScoreOf(MmaSums<Instance::kWarpKeys / 8>& scores,
                                     int half, int key) {
  return scores[key / 2][2 * half + key % 2];
}

/// Keys that the mask leaves out become -inf.
template <typename Instance>
ATTENTION_KERNEL_CODE void MaskRow(const AttentionArgs& args,
                                   const MmaMemory<Instance>& memory,
                                   const MmaRowOptions& options, int row,
                                   MmaSums<Instance::kWarpKeys / 8>& scores) {
  ForEachElement<Instance, uint8_t>(
      args.attend_mask, options.mask, memory.elements, row,
      [&](int key, const uint32_t* words, int n) {
        const bool attends = (words[n / 4] & 0xFFU << (n % 4 * 8)) != 0;
        float& score = ScoreOf<Instance>(scores, row % 2, key);
        score = attends ? score : -Infinity();
      });
}

template <typename Instance, typename Number>
ATTENTION_KERNEL_CODE void AddBiasToRow(
    const AttentionArgs& args, const MmaMemory<Instance>& memory,
    const MmaRowOptions& options, int row, float factor,
    MmaSums<Instance::kWarpKeys / 8>& scores) {
  ForEachElement<Instance, Number>(
      args.bias, options.bias, BiasElements<Instance>(args, memory), row,
      [&](int key, const uint32_t* words, int n) {
        const float bias = WidenAt<Number>(words, n);
        float& score = ScoreOf<Instance>(scores, row % 2, key);
        const float sum = Fma(score, factor, bias);
        // Not added: a masked NaN must not survive as -inf + NaN.
        score = bias == -Infinity() ? bias : sum;
      });
}

/// `key`: the thread's first one, counted from the block's first.
template <typename Instance>
ATTENTION_KERNEL_CODE void AddAlibiToRow(
    const MmaRowOptions& options, float key, int half, float factor,
    MmaSums<Instance::kWarpKeys / 8>& scores) {
  const float distance = options.position - key;
  const float slope = options.slope;
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kThreadKeys; ++n) {
    float& score = ScoreOf<Instance>(scores, half, n);
    const float penalty = slope * fabsf(distance - static_cast<float>(n));
    score = Fma(score, factor, -penalty);
  }
}

/// cap tanh(score / cap); `steepness` is CapSteepness(cap). tanh(x) is 1 - 2 /
/// (e^2x + 1), and for small x, where that would lose all bits, a polynomial:
/// 2^-24 off at most.
ATTENTION_KERNEL_CODE float CappedScore(float score, float cap,
                                        float steepness) {
  const float y = score * steepness;  // 2 x log2 e
  const float z = y * y;
  float p = 3.74424772e-06F;
  p = Fma(p, z, -9.25143729e-05F);
  p = Fma(p, z, 0.00192321366F);
  p = Fma(p, z, -0.0400377244F);
  const float small = Fma(score, p * z, score);
  const float half_sum = Fma(FastExp2(y), 0.5F, 0.5F);
  const float large = Fma(-Reciprocal(half_sum), cap, cap);
  constexpr float kSmallest = kLog2E;  // |x| of 1/2
  return fabsf(y) < kSmallest ? small : large;
}

/// The weights of dropped keys become 0; `key` is the thread's first one.
template <typename Instance>
ATTENTION_KERNEL_CODE void DropFromRow(
    const DropoutArgs& dropout, const RowInfo& row, int64_t key, int half,
    MmaSums<Instance::kWarpKeys / 8>& weights) {
  ATTENTION_UNROLL_ALL
  for (int n = 0; n < Instance::kThreadKeys; n += 4) {
    const PhiloxWords words =
        DropoutWords(dropout, row.batch, row.head, row.query, key + n);
    ATTENTION_UNROLL_ALL
    for (int i = 0; i < 4; ++i) {
      float& weight = ScoreOf<Instance>(weights, half, n + i);
      weight = words.word[i] < dropout.threshold ? 0.0F : weight;
    }
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_MMA_OPTIONS_INL_H_
