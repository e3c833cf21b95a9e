#ifndef ATTENTION_CORE_CUDA_KERNELS_MASK_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_MASK_INL_H_

// What stands between a sum of products and the softmax: factor, softcap, bias
// and masks, for one score at a time.

#include "core/cuda/kernels/rows-inl.h"

namespace attention::cuda {

ATTENTION_KERNEL_CODE float LoadFloat(const void* data, Element type,
                                      int64_t index) {
  switch (type) {
    case Element::kFloat32:
      return static_cast<const float*>(data)[index];
    case Element::kFloat16:
      return Widen(static_cast<const Half*>(data)[index]);
    case Element::kBFloat16:
      return Widen(static_cast<const Brain*>(data)[index]);
    default:
      return Widen(static_cast<const double*>(data)[index]);
  }
}

ATTENTION_KERNEL_CODE double LoadDouble(const void* data, Element type,
                                        int64_t index) {
  return type == Element::kFloat64 ? static_cast<const double*>(data)[index]
                                   : double{LoadFloat(data, type, index)};
}

/// The element of a row at key j lies this many elements on from the row's.
ATTENTION_KERNEL_CODE int64_t RowOffset(const Broadcast& mask, int64_t batch,
                                        int64_t head, int64_t query) {
  return batch * mask.stride_b + head * mask.stride_h + query * mask.stride_i;
}

/// What the options make of scores, in FP32.
struct Epilogue {
  float factor;   // what sums are multiplied by
  float softcap;  // 0: none
  float softcap_inverse;
  bool plain;  // neither softcap nor bias: factor holds log2 e already
  /// Sums are no scores to judge a row's magnitude by: this is added instead.
  float magnitude;
  bool has_magnitude;
};

template <Score kScore>
ATTENTION_KERNEL_CODE Epilogue MakeEpilogue(const AttentionArgs& args) {
  Epilogue epilogue;
  const double factor = kScore == Score::kAdditive ? 1.0 : args.factor;
  epilogue.plain = args.softcap == 0 && args.bias.data == nullptr;
  constexpr double kWideLog2E = 1.4426950408889634;
  epilogue.factor =
      static_cast<float>(epilogue.plain ? factor * kWideLog2E : factor);
  epilogue.softcap = static_cast<float>(args.softcap);
  epilogue.softcap_inverse =
      args.softcap == 0 ? 0.0F : static_cast<float>(1 / args.softcap);
  epilogue.magnitude = 0;
  epilogue.has_magnitude = false;
  return epilogue;
}

/// The score of one row and key, times log2 e, of a sum of terms; -inf where
/// the key takes no part. `magnitude` grows to what is known of the row's.
ATTENTION_KERNEL_CODE float FinishScore(const AttentionArgs& args,
                                        const Epilogue& epilogue,
                                        int64_t mask_offset,
                                        int64_t bias_offset, int64_t key,
                                        float sum, float& magnitude) {
  if (args.attend_mask.data != nullptr) {
    const auto* const mask =
        static_cast<const uint8_t*>(args.attend_mask.data) + mask_offset;
    if (mask[key * args.attend_mask.stride_j] == 0) return -Infinity();
  }
  float score = sum * epilogue.factor;
  if (epilogue.plain) {
    const float size =
        epilogue.has_magnitude ? epilogue.magnitude * kLog2E : fabsf(score);
    magnitude = Larger(magnitude, size * static_cast<float>(kLn2));
    return score;
  }
  float bias = 0;
  if (args.bias.data != nullptr) {
    bias = LoadFloat(args.bias.data, args.bias.type,
                     bias_offset + key * args.bias.stride_j);
    // Returned, not added: a masked NaN must not survive as -inf + NaN.
    if (bias == -Infinity()) return bias;
  }
  const float size = epilogue.has_magnitude ? epilogue.magnitude : fabsf(score);
  magnitude = Larger(magnitude, size + fabsf(bias));
  if (epilogue.softcap != 0) {
    score = epilogue.softcap * tanhf(score * epilogue.softcap_inverse);
  }
  return (score + bias) * kLog2E;
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_MASK_INL_H_
