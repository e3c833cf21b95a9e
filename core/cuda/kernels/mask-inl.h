#ifndef ATTENTION_CORE_CUDA_KERNELS_MASK_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_MASK_INL_H_

// What stands between a sum of products and the softmax: factor, softcap,
// ALiBi, bias and masks, for one score at a time.

#include <cfloat>

#include "core/cuda/kernels/rows-inl.h"

namespace attention::cuda {

/// The element of a row at key j lies this many elements on from the row's.
ATTENTION_KERNEL_CODE int64_t RowOffset(const Broadcast& mask, int64_t batch,
                                        int64_t head, int64_t query) {
  return batch * mask.stride_b + head * mask.stride_h + query * mask.stride_i;
}

/// Where a row's masks lie, and its ALiBi for keys from `first_key` on.
struct RowMasks {
  int64_t mask = 0;
  int64_t bias = 0;
  int64_t first_key = 0;
  float slope = 0;
  float position = 0;  // of the row, counted from first_key
};

ATTENTION_KERNEL_CODE RowMasks MasksOf(const AttentionArgs& args, int64_t batch,
                                       int64_t head, int64_t query,
                                       int64_t first_key) {
  RowMasks masks;
  masks.first_key = first_key;
  if (args.attend_mask.data != nullptr) {
    masks.mask = RowOffset(args.attend_mask, batch, head, query);
  }
  if (args.bias.data != nullptr) {
    masks.bias = RowOffset(args.bias, batch, head, query);
  }
  if (args.alibi_slopes != nullptr) {
    masks.slope = args.alibi_slopes[batch * args.query_heads + head];
    masks.position = static_cast<float>(args.alibi_positions[batch] +
                                        static_cast<double>(query - first_key));
  }
  return masks;
}

/// What the options make of scores, in FP32.
struct Epilogue {
  float factor;   // what sums are multiplied by
  float softcap;  // 0: none
  float softcap_inverse;
};

/// An infinite factor would make NaN of sums that are 0.
ATTENTION_KERNEL_CODE float LimitToFloat(double x) {
  if (x > FLT_MAX) return FLT_MAX;
  if (x < -FLT_MAX) return -FLT_MAX;
  return static_cast<float>(x);
}

inline constexpr double kWideLog2E = 1.4426950408889634;

ATTENTION_KERNEL_CODE Epilogue MakeEpilogue(const AttentionArgs& args) {
  Epilogue epilogue;
  epilogue.factor = LimitToFloat(args.factor);
  epilogue.softcap = static_cast<float>(args.softcap);
  epilogue.softcap_inverse = args.softcap == 0 ? 0.0F : 1 / epilogue.softcap;
  return epilogue;
}

/// softcap * tanh(score / softcap). Scores that are small beside the softcap
/// stay as they are, for their quotient may be too small for FP32.
ATTENTION_KERNEL_CODE float Capped(const Epilogue& epilogue, float score) {
  if (fabsf(score) < epilogue.softcap * 0x1p-13F) return score;
  return epilogue.softcap * tanhf(score * epilogue.softcap_inverse);
}

/// 2 log2 e / softcap: what makes an exponent of e^2x of a score, x being its
/// quotient by the softcap.
ATTENTION_KERNEL_CODE float CapSteepness(double softcap) {
  return static_cast<float>(2 * kWideLog2E / softcap);
}

/// The score of one row and key, of a sum of terms; -inf where the key takes no
/// part.
ATTENTION_KERNEL_CODE float FinishScore(const AttentionArgs& args,
                                        const Epilogue& epilogue,
                                        const RowMasks& masks, int64_t key,
                                        float sum) {
  if (args.attend_mask.data != nullptr) {
    const auto* const mask =
        static_cast<const uint8_t*>(args.attend_mask.data) + masks.mask;
    if (mask[key * args.attend_mask.stride_j] == 0) return -Infinity();
  }
  float score = sum * epilogue.factor;
  float bias = 0;
  if (args.bias.data != nullptr) {
    bias = LoadFloat(args.bias.data, args.bias.type,
                     masks.bias + key * args.bias.stride_j);
    // Returned, not added: a masked NaN must not survive as -inf + NaN.
    if (bias == -Infinity()) return bias;
  }
  if (epilogue.softcap != 0) score = Capped(epilogue, score);
  if (args.alibi_slopes != nullptr) {
    const auto column = static_cast<float>(key - masks.first_key);
    score = Fma(-masks.slope, fabsf(masks.position - column), score);
  }
  return score + bias;
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_MASK_INL_H_
