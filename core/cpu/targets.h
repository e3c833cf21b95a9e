#ifndef ATTENTION_CORE_CPU_TARGETS_H_
#define ATTENTION_CORE_CPU_TARGETS_H_

#include "absl/types/span.h"
#include "core/cpu/kernels/kernels.h"

namespace attention::cpu {

/// The kernels that this build has and this processor can run, best first.
/// Products of BF16 stand before the instruction set that they are added to
/// where they are faster: those of AMX always, those of AVX512-BF16 on AMD's
/// processors. On Intel's they stand behind, to be asked for: Emerald Rapids
/// has half the rate of FP32's multiply-adds (VDPBF16PS).
absl::Span<const Kernels> Targets();

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_TARGETS_H_
