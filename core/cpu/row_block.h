#ifndef ATTENTION_CORE_CPU_ROW_BLOCK_H_
#define ATTENTION_CORE_CPU_ROW_BLOCK_H_

#include <cstdint>

#include "core/cpu/job_run.h"

namespace attention::cpu {

/// Computes block `index` of the job's plan: a few rows of one lane against all
/// their keys, and stores its results. False once the job was stopped or is out
/// of memory.
bool ComputeRowBlock(JobRun& run, int64_t index);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROW_BLOCK_H_
