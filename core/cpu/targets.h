#ifndef ATTENTION_CORE_CPU_TARGETS_H_
#define ATTENTION_CORE_CPU_TARGETS_H_

#include "absl/types/span.h"
#include "core/cpu/kernels/kernels.h"

namespace attention::cpu {

/// The kernels that this build has and this processor can run, best first. AMX
/// stands before the instruction set that it adds products to. AVX512-BF16
/// stands behind: where it was at hand (Emerald Rapids) VDPBF16PS multiplied at
/// half the rate of FP32's multiply-adds, so it is there to be asked for.
absl::Span<const Kernels> Targets();

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_TARGETS_H_
