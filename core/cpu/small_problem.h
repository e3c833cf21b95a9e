#ifndef ATTENTION_CORE_CPU_SMALL_PROBLEM_H_
#define ATTENTION_CORE_CPU_SMALL_PROBLEM_H_

#include <cstdint>

#include "core/cpu/kernels/kernels.h"
#include "core/result_places.h"
#include "core/validate.h"

namespace attention::cpu {

/// As replies call it.
inline constexpr char kSmallKernel[] = "fp32_small";

/// True for a problem whose batch entries ComputeSmall() may try: scaled dot
/// product in FP32 over at most kSmallKeys keys and widths of at most
/// kSmallWidth, with rows of floats, and nothing asked for but the output. It
/// follows from what is asked and from one entry's extents, never from the data
/// nor from how many entries there are: other kernels round otherwise.
bool HasSmallEntries(const ValidatedProblem& problem);
/// The same, and all entries together are worth no second thread.
bool IsSmallProblem(const ValidatedProblem& problem);

/// Computes the batch entries from `first` up to `end` on the calling thread.
/// False, with results that mean nothing, where one is not finite; such an
/// entry must then be computed as any other problem, which knows what an
/// infinite value does to a weight that underflows.
bool ComputeSmall(const ValidatedProblem& problem, const ResultPlaces& places,
                  const Kernels& kernels, int64_t first, int64_t end);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SMALL_PROBLEM_H_
