#include "core/cpu/kernels/kernels.h"

#include <cstring>

// Nothing is built below the baseline of cmake/InstructionSets.cmake: a
// processor without that is left to the reference.
#if defined(__x86_64__)
#define HWY_DISABLED_TARGETS HWY_SSSE3
#elif defined(__aarch64__)
// Vectors of SVE have no size that the compiler knows, so no arrays hold them.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/kernels.cc"
// clang-format off
#include "hwy/foreach_target.h"  // must come before all that follow
// clang-format on
#include "core/cpu/kernels/bf16/bytes-inl.h"
#include "core/cpu/kernels/bf16/tiles-inl.h"
#include "core/cpu/kernels/convert-inl.h"
#include "core/cpu/kernels/finish-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "core/cpu/kernels/pack-inl.h"
#include "core/cpu/kernels/project-inl.h"
#include "core/cpu/kernels/small-inl.h"
#include "core/cpu/kernels/tile-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

const Kernels* GetKernels() {
  static const Kernels kKernels = {
      .name = hwy::TargetName(HWY_TARGET),
      .lanes = static_cast<int64_t>(hn::Lanes(F())),
      .micro_rows = kMicroRows,
      .reads_half = ATTENTION_HARDWARE_FP16 != 0,
      .bf16 = nullptr,  // which one is to be used is decided elsewhere
      .widen_rows = WidenRows,
      .pack_queries = PackQueries,
      .pack_keys = PackKeys,
      .project = Project,
      .centre_rows = CentreRows,
      .largest_magnitude = LargestMagnitude,
      .exp_twice = ExpTwiceAll,
      .exp_twice_wide = ExpTwiceWideAll,
      .add_partial_scores = AddPartialScores,
      .attend_tile = AttendTile,
      .store_weights = StoreWeights,
      .store_scores = StoreScores,
      .attend_small = AttendSmall,
      .finish_rows = FinishRows,
      .scale_row = ScaleRow,
      .copy_bf16 = CopyRowsIntoTerms<1>,
      .copy_bytes_as_bf16 = CopyBytesAsBf16,
      .split_fp16 = CopyRowsIntoTerms<2>,
      .pack_bf16_keys = PackBf16Keys,
      .pack_bf16_values = PackValues<1>,
      .pack_fp16_values = PackValues<2>,
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
