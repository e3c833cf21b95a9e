#include "core/cpu/rows/row_block.h"

#include <algorithm>
#include <cstddef>
#include <new>

#include "core/cpu/block_rows.h"
#include "core/cpu/flush_subnormals.h"
#include "core/cpu/rows/row_pass.h"
#include "core/cpu/scoring_traits.h"
#include "core/cpu/scratch.h"

namespace attention::cpu {
namespace {

// Computes the rows that a pass remains for together with those between them
// and the others of their micro-tiles: which rows share one shows in their last
// bits, and must not follow from where a block ends. Some of them may then
// remain for another pass.
bool RunPass(JobRun& run, const BlockRows& rows, Pass pass,
             Remaining& remaining, std::byte* memory) {
  const auto first = std::find(remaining.begin(), remaining.end(), pass);
  if (first == remaining.end()) return true;
  const auto last =
      std::find(remaining.rbegin(), remaining.rend(), pass).base();
  if (pass == Pass::kDifferences) run.SetLostRows();
  const int64_t micro_rows = run.kernels().micro_rows;
  const int64_t begin = (first - remaining.begin()) / micro_rows * micro_rows;
  const int64_t end =
      std::min(RoundUp(last - remaining.begin(), micro_rows), rows.count());
  const BlockRows some = rows.Some(begin, end - begin);
  Pass* const of_some = &remaining[static_cast<size_t>(begin)];
  Scratch scratch(memory);
  Remaining next;
  if (!RowPass(run, some, pass, of_some, scratch).Run(next)) return false;
  for (size_t r = 0; r < next.size(); ++r) {
    if (next[r] != Pass::kAttend) of_some[r] = next[r];
  }
  return true;
}

// Scores need no softmax: what they are is up to no other pass.
bool RunScores(JobRun& run, const BlockRows& rows, std::byte* memory) {
  if (!run.problem().wanted.scores) return true;
  Scratch scratch(memory);
  return RowPass(run, rows, Pass::kScores, nullptr, scratch).RunScores();
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
           RunPass(run, rows, Pass::kUniform, remaining, memory) &&
           RunScores(run, rows, memory);
  } catch (const std::bad_alloc&) {
    run.SetOutOfMemory();
    return false;
  }
}

}  // namespace

size_t RowBlockBytes(JobRun& run) {
  const BlockRows rows(run.problem(), run.plan(), 0);
  size_t bytes = 0;
  for (const Pass pass :
       {Pass::kAttend, Pass::kDifferences, Pass::kUniform, Pass::kScores}) {
    if (pass == Pass::kDifferences && !TraitsOf(run.problem()).may_lose_rows) {
      continue;
    }
    if (pass == Pass::kScores && !run.problem().wanted.scores) continue;
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

bool ComputeSplit(JobRun& run, int64_t index, const KeyRange& keys,
                  float* partial) {
  return WithMemory(run, index, [&keys, partial](RowPass& block, Remaining&) {
    return block.RunSplit(keys, partial);
  });
}

bool MergeSplits(JobRun& run, int64_t index, int64_t splits,
                 const float* partials) {
  return WithMemory(run, index,
                    [splits, partials](RowPass& block, Remaining& remaining) {
                      return block.RunMerge(partials, splits, remaining);
                    });
}

}  // namespace attention::cpu
