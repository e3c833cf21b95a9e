#ifndef ATTENTION_CORE_CPU_ROWS_ROW_BLOCK_H_
#define ATTENTION_CORE_CPU_ROWS_ROW_BLOCK_H_

#include <cstddef>
#include <cstdint>

#include "core/cpu/job_run.h"

namespace attention::cpu {

/// Bytes of scratch that any blocks of the job take; its plan has one or more.
size_t RowBlockBytes(JobRun& run);

/// Computes blocks of the job's plan, each a few rows of one kv group against
/// all their keys, and stores their results. Several take turns at each tile.
/// False once the job was stopped or is out of memory.
bool ComputeRowBlocks(JobRun& run, const Blocks& blocks);

/// The same in two steps, where a block's keys are split (Plan::SplitsOf):
/// first every split, the unfinished states of each block's rows put into
/// `partial` (rows of plan().partial_floats()), `apart` floats from those of
/// the block before, then all splits of a block together, one after the other.
bool ComputeSplit(JobRun& run, const Blocks& blocks, const KeyRange& keys,
                  float* partial, int64_t apart);
bool MergeSplits(JobRun& run, int64_t index, int64_t splits,
                 const float* partials);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_ROW_BLOCK_H_
