#include "core/cpu/rows/row_block.h"

#include <algorithm>
#include <cstddef>
#include <new>

#include "core/cpu/flush_subnormals.h"
#include "core/cpu/rows/block_rows.h"
#include "core/cpu/rows/row_pass.h"
#include "core/cpu/scratch.h"

namespace attention::cpu {
namespace {

// Rows that a pass remains for, computed together with those between them.
bool RunPass(JobRun& run, const BlockRows& rows, Pass pass,
             const Remaining& remaining, std::byte* memory) {
  const auto first = std::find(remaining.begin(), remaining.end(), pass);
  if (first == remaining.end()) return true;
  const auto last =
      std::find(remaining.rbegin(), remaining.rend(), pass).base();
  if (pass == Pass::kDifferences) run.SetLostRows();
  const BlockRows some = rows.Some(first - remaining.begin(), last - first);
  Scratch scratch(memory);
  Remaining none;
  return RowPass(run, some, pass, &*first, scratch).Run(none);
}

// Calls work(block, remaining) on a block that has its memory, then computes
// what remains; by then the block's memory is theirs.
template <typename Work>
bool WithMemory(JobRun& run, int64_t index, const Work& work) {
  const ThreadMemory lease(run.scratch_bytes());
  std::byte* const memory = lease.get();
  if (memory == nullptr) {
    run.SetOutOfMemory();
    return false;
  }
  try {
    const FlushSubnormals fast;
    const BlockRows rows(run.problem(), run.plan(), index);
    Remaining remaining;
    {
      Scratch scratch(memory);
      RowPass block(run, rows, Pass::kAttend, nullptr, scratch);
      if (!work(block, remaining)) return false;
    }
    return RunPass(run, rows, Pass::kDifferences, remaining, memory) &&
           RunPass(run, rows, Pass::kUniform, remaining, memory);
  } catch (const std::bad_alloc&) {
    run.SetOutOfMemory();
    return false;
  }
}

}  // namespace

size_t RowBlockBytes(JobRun& run) {
  const BlockRows rows(run.problem(), run.plan(), 0);
  size_t bytes = 0;
  for (const Pass pass : {Pass::kAttend, Pass::kDifferences, Pass::kUniform}) {
    if (pass == Pass::kDifferences && !MayLoseRows(run.problem())) continue;
    Scratch count;
    const RowPass block(run, rows, pass, nullptr, count);
    bytes = std::max(bytes, count.used());
  }
  return bytes;
}

bool ComputeRowBlock(JobRun& run, int64_t index) {
  return WithMemory(run, index, [](RowPass& block, Remaining& remaining) {
    return block.Run(remaining);
  });
}

bool ComputeSplit(JobRun& run, int64_t index, int64_t split, float* partial) {
  return WithMemory(run, index, [split, partial](RowPass& block, Remaining&) {
    return block.RunSplit(split, partial);
  });
}

bool MergeSplits(JobRun& run, int64_t index, const float* partials) {
  return WithMemory(run, index,
                    [partials](RowPass& block, Remaining& remaining) {
                      return block.RunMerge(partials, remaining);
                    });
}

}  // namespace attention::cpu
