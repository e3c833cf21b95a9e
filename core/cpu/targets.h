#ifndef ATTENTION_CORE_CPU_TARGETS_H_
#define ATTENTION_CORE_CPU_TARGETS_H_

#include "absl/types/span.h"
#include "core/cpu/kernels.h"

namespace attention::cpu {

/// The kernels that this build has and this processor can run, best first: of
/// an instruction set with products of BF16 first those that use them.
absl::Span<const Kernels> Targets();

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_TARGETS_H_
