#ifndef ATTENTION_CORE_CPU_ROWS_ROW_BLOCK_H_
#define ATTENTION_CORE_CPU_ROWS_ROW_BLOCK_H_

#include <cstddef>
#include <cstdint>

#include "core/cpu/job_run.h"

namespace attention::cpu {

/// Bytes of scratch that any block of the job takes; its plan has one or more.
size_t RowBlockBytes(JobRun& run);

/// Computes block `index` of the job's plan: a few rows of one kv group against
/// all their keys, and stores its results. False once the job was stopped or is
/// out of memory.
bool ComputeRowBlock(JobRun& run, int64_t index);

/// The same in two steps, where a block's keys are split (Plan::SplitsOf):
/// first every split, its rows' unfinished states put into `partial` (rows of
/// plan().partial_floats()), then all splits of a block together, one after the
/// other.
bool ComputeSplit(JobRun& run, int64_t index, const KeyRange& keys,
                  float* partial);
bool MergeSplits(JobRun& run, int64_t index, int64_t splits,
                 const float* partials);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_ROW_BLOCK_H_
