#ifndef ATTENTION_CORE_CPU_SMALL_PROBLEM_H_
#define ATTENTION_CORE_CPU_SMALL_PROBLEM_H_

#include "core/backend.h"
#include "core/cpu/kernels/kernels.h"

namespace attention::cpu {

/// True for a problem that ComputeSmall() may try: scaled dot product in FP32
/// over at most kSmallKeys keys and widths of at most kSmallWidth, with rows of
/// floats, and nothing asked for but the output. It follows from what is asked
/// and from the extents, never from the data.
bool IsSmallProblem(const ValidatedProblem& problem);

/// Computes it on the calling thread. False, with results that mean nothing,
/// where one is not finite; the problem must then be computed as any other,
/// which knows what an infinite value does to a weight that underflows.
bool ComputeSmall(AttentionJob& job, const RunContext& context,
                  const Kernels& kernels);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SMALL_PROBLEM_H_
