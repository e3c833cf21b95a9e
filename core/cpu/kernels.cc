#include "core/cpu/kernels.h"

#include <cstring>

// Nothing below SSE4 is built: a processor without it is left to the reference.
#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#define HWY_DISABLED_TARGETS HWY_SSSE3
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels.cc"
// clang-format off
#include "hwy/foreach_target.h"  // must come before all that follow
// clang-format on
#include "core/cpu/bf16-inl.h"
#include "core/cpu/convert-inl.h"
#include "core/cpu/decode-inl.h"
#include "core/cpu/magnitudes-inl.h"
#include "core/cpu/math-inl.h"
#include "core/cpu/pack-inl.h"
#include "core/cpu/score-inl.h"
#include "core/cpu/small-inl.h"
#include "core/cpu/tile-inl.h"
#include "core/cpu/wide-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

const Kernels* GetKernels() {
  static const Kernels kKernels = {
      .name = hwy::TargetName(HWY_TARGET),
      .lanes = static_cast<int64_t>(hn::Lanes(F())),
      .group_rows = kGroupRows,
      .reads_half = ATTENTION_HARDWARE_FP16 != 0,
      .bf16 = nullptr,  // which one is to be used is decided elsewhere
      .widen_rows = WidenRows,
      .pack_queries = PackQueries,
      .pack_keys = PackKeys,
      .project = Project,
      .centre_rows = CentreRows,
      .all_within = AllWithin,
      .any_beyond = AnyBeyond,
      .exp_twice = ExpTwiceAll,
      .attend_tile = AttendTile,
      .attend_rows = AttendRows,
      .attend_small = AttendSmall,
      .store_weights = StoreWeights,
      .copy_bf16 = CopyBf16Rows,
      .pack_bf16_values = PackBf16Values,
      .attend_bf16 = AttendBf16,
      .store_weights_bf16 = StoreBf16Weights,
      .finish_rows = FinishRows,
      .scale_row = ScaleRow,
      .widen_to_double = WidenToDouble,
      .wide_exp_twice = WideExpTwice,
      .wide_project = WideProject,
      .wide_attend = WideAttend,
      .wide_average = WideAverage,
      .wide_weights = WideWeights,
  };
  return &kKernels;
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attention::cpu {

HWY_EXPORT(GetKernels);

const int64_t* AvailableTargets() {
  static const int64_t* const kTargets = [] {
    static int64_t targets[HWY_MAX_DYNAMIC_TARGETS + 2] = {};
    size_t count = 0;
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      targets[count++] = target;
    }
    return targets;
  }();
  return kTargets;
}

const Kernels& KernelsOf(int64_t target) {
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
  static_cast<void>(target);
  return *HWY_STATIC_DISPATCH(GetKernels)();
#else
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return *HWY_DISPATCH_TABLE(GetKernels)[chosen.GetIndex()]();
#endif
}

}  // namespace attention::cpu
#endif  // HWY_ONCE
