#ifndef ATTENTION_CORE_CPU_CAREFUL_COPIES_H_
#define ATTENTION_CORE_CPU_CAREFUL_COPIES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/cpu/job_run.h"
#include "core/cpu/row_id.h"

namespace attention::cpu {

/// CarefulRows::Compute() with the calling thread's memory: what it held is
/// lost. Of rows that have the same result by ZeroRows, one is computed and
/// copied to the others. False once the job was stopped or is out of memory.
bool ComputeCarefulRows(JobRun& run, int64_t batch,
                        absl::Span<const RowId> rows);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_CAREFUL_COPIES_H_
