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
int DispatchRecompute(const AttentionArgs& args, const Launch& launch) {
  return DispatchScore(args, [&]<Score kScore>() {
    return args.value.width <= 64 ? launch.template operator()<kScore, 1>()
                                  : launch.template operator()<kScore, 2>();
  });
}

/// launch.operator()<Score, groups of 64 columns of the values,
/// AttendSide()>().
template <typename Launch>
int DispatchAttend(const AttentionArgs& args, const Launch& launch) {
  return DispatchRecompute(args, [&]<Score kScore, int kColumnGroups>() {
    if constexpr (kScore == Score::kDot) {
      if (AttendSide(args) == 2) {
        return launch.template operator()<kScore, kColumnGroups, 2>();
      }
    }
    return launch.template operator()<kScore, kColumnGroups, 1>();
  });
}

/// What attend_mma is compiled for: a type (Half, Brain), rows of up to kWidth
/// columns, rows of a block, and whether it has code for the options, mask,
/// bias, softcap, ALiBi and dropout. A problem with some of them runs the code
/// of these: what it has not is a branch for each tile of keys. kPaged: whether
/// it has code for pages, as what computes several entries has.
template <typename Type, int kWidthOf, int kRowsOf, bool kOptionsOf,
          bool kPagedOf>
struct MmaInstance {
  using T = Type;
  static constexpr int kWidth = kWidthOf;
  static constexpr int kRows = kRowsOf;
  static constexpr bool kOptions = kOptionsOf;
  static constexpr bool kPaged = kPagedOf;
  /// Whether the warps have the same rows and each a part of the keys.
  static constexpr bool kSharesRows = kRows == kMmaSharedRows;
  static constexpr int kTiles = kSharesRows ? 1 : kRows / 64;  // of a warp
  static constexpr int kKeys = static_cast<int>(MmaKeys(kWidth, kRows));
  /// Keys of a tile that a warp has.
  static constexpr int kWarpKeys = kSharesRows ? kKeys / 4 : kKeys;
  /// Keys of a tile that a thread has in each of its rows, side by side, so
  /// that it can load their masks and biases at once, and needs all of what it
  /// computes for a dropout.
  static constexpr int kThreadKeys = kWarpKeys / 4;
};

/// launch.operator()<MmaInstance>(). kEntries: of several entries, all of which
/// MmaWidth() and MmaRows() have in one class; they run the code for options.
template <bool kEntries = false, typename Launch>
int DispatchMma(const AttentionArgs& args, const Launch& launch) {
  const int64_t rows = MmaRows(args);
  const auto with_rows = [&]<typename T, int kWidth, int kRows>() {
    if constexpr (!kEntries && kRows == MmaMostRows(kWidth)) {
      if (!MmaHasOptions(args, rows)) {
        return launch
            .template operator()<MmaInstance<T, kWidth, kRows, false, false>>();
      }
    }
    return launch
        .template operator()<MmaInstance<T, kWidth, kRows, true, kEntries>>();
  };
  const auto with_width = [&]<typename T, int kWidth>() {
    if (rows == kMmaSharedRows) {
      return with_rows.template operator()<T, kWidth, kMmaSharedRows>();
    }
    if constexpr (MmaMostRows(kWidth) > 64) {
      if (rows > 64) return with_rows.template operator()<T, kWidth, 128>();
    }
    return with_rows.template operator()<T, kWidth, 64>();
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
