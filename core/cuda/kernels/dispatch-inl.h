#ifndef ATTENTION_CORE_CUDA_KERNELS_DISPATCH_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_DISPATCH_INL_H_

// Which instance of a kernel serves the arguments: launch is a template that is
// called with the instance's parameters. Host code.

#include "core/cuda/kernels/arguments.h"
#include "core/cuda/kernels/limits.h"
#include "core/cuda/portable/portable.h"

namespace attention::cuda {

/// launch.operator()<Score>().
template <typename Launch>
int DispatchScore(const AttentionArgs& args, const Launch& launch) {
  switch (args.score) {
    case Score::kDot:
      return launch.template operator()<Score::kDot>();
    case Score::kAdditive:
      return launch.template operator()<Score::kAdditive>();
    case Score::kGaussian:
      return launch.template operator()<Score::kGaussian>();
  }
  __builtin_unreachable();
}

/// launch.operator()<Score, groups of 64 columns of the values>().
template <typename Launch>
int DispatchAttend(const AttentionArgs& args, const Launch& launch) {
  return DispatchScore(args, [&]<Score kScore>() {
    return args.value.width <= 64 ? launch.template operator()<kScore, 1>()
                                  : launch.template operator()<kScore, 2>();
  });
}

/// What attend_mma is compiled for: a type (Half, Brain), rows of up to kWidth
/// columns, tiles of 16 rows per warp, and whether nothing but the factor and
/// key ranges stands between QK and the softmax.
template <typename Type, int kWidthOf, int kTilesOf, bool kIsPlain>
struct MmaInstance {
  using T = Type;
  static constexpr int kWidth = kWidthOf;
  static constexpr int kTiles = kTilesOf;
  static constexpr int kKeys = static_cast<int>(MmaKeys(kWidth));
  static constexpr bool kPlain = kIsPlain;
};

/// launch.operator()<MmaInstance>().
template <typename Launch>
int DispatchMma(const AttentionArgs& args, const Launch& launch) {
  const auto with_tiles = [&]<typename T, int kWidth, bool kPlain>() {
    if constexpr (kWidth <= MmaWidestOfTwo(kPlain)) {
      if (MmaTilesPerWarp(args) == 2) {
        return launch.template operator()<MmaInstance<T, kWidth, 2, kPlain>>();
      }
    }
    return launch.template operator()<MmaInstance<T, kWidth, 1, kPlain>>();
  };
  const auto with_width = [&]<typename T, int kWidth>() {
    return IsPlainMma(args)
               ? with_tiles.template operator()<T, kWidth, true>()
               : with_tiles.template operator()<T, kWidth, false>();
  };
  const auto with_type = [&]<typename T>() {
    switch (MmaWidth(args)) {
      case 64:
        return with_width.template operator()<T, 64>();
      case 128:
        return with_width.template operator()<T, 128>();
      default:
        return with_width.template operator()<T, 256>();
    }
  };
  return args.query.type == Element::kFloat16
             ? with_type.template operator()<Half>()
             : with_type.template operator()<Brain>();
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_DISPATCH_INL_H_
