#ifndef ATTENTION_CORE_CPU_JOB_BATCH_H_
#define ATTENTION_CORE_CPU_JOB_BATCH_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/backend.h"
#include "core/cpu/kernels/kernels.h"

namespace attention::cpu {

/// Computes jobs together and writes what became of each: how one is cut
/// follows from it alone, and the workers share the pieces of all.
void RunTogether(absl::Span<AttentionJob> jobs, const RunContext& context,
                 const Kernels& kernels);

/// Bytes that this takes at one time, at most, where a thread's first
/// `of_thread` do not count. Reads no tensor.
int64_t WorkingBytes(absl::Span<const ValidatedProblem> problems,
                     const RunContext& context, const Kernels& kernels,
                     int64_t of_thread);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_JOB_BATCH_H_
