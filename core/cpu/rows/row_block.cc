#include "core/cpu/rows/row_block.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <optional>

#include "absl/container/fixed_array.h"
#include "core/cpu/block_rows.h"
#include "core/cpu/flush_subnormals.h"
#include "core/cpu/rows/row_pass.h"
#include "core/cpu/scoring_traits.h"
#include "core/cpu/scratch.h"

namespace attention::cpu {
namespace {

KeyRange AllKeys(const JobRun& run) { return {0, run.problem().key_length}; }

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
  TileRoom room(run, scratch);
  RowPasses one(1);
  one[0].emplace(run, some, pass, of_some, room, scratch);
  Remaining next;
  if (!RowPass::Sweep(one, AllKeys(run)) || !one[0]->Finish(next)) return false;
  for (size_t r = 0; r < next.size(); ++r) {
    if (next[r] != Pass::kAttend) of_some[r] = next[r];
  }
  return true;
}

// Scores need no softmax: what they are is up to no other pass.
bool RunScores(JobRun& run, const BlockRows& rows, std::byte* memory) {
  if (!run.problem().wanted.scores) return true;
  Scratch scratch(memory);
  TileRoom room(run, scratch);
  return RowPass(run, rows, Pass::kScores, nullptr, room, scratch).RunScores();
}

bool RunRemaining(JobRun& run, int64_t index, Remaining& remaining,
                  std::byte* memory) {
  if (remaining.empty() && !run.problem().wanted.scores) return true;
  const BlockRows rows(run.problem(), run.plan(), index);
  return RunPass(run, rows, Pass::kDifferences, remaining, memory) &&
         RunPass(run, rows, Pass::kUniform, remaining, memory) &&
         RunScores(run, rows, memory);
}

// Calls work(blocks, what remains of each) on blocks that have their memory,
// then computes what remains; by then the blocks' memory is theirs.
template <typename Work>
bool WithMemory(JobRun& run, const Blocks& blocks, const Work& work) {
  const ThreadMemory lease(run.scratch_bytes());
  std::byte* const memory = lease.get();
  if (memory == nullptr) {
    run.SetOutOfMemory();
    return false;
  }
  try {
    const FlushSubnormals fast;
    const auto count = static_cast<size_t>(blocks.count);
    absl::FixedArray<Remaining, 1> remaining(count);
    {
      Scratch scratch(memory);
      TileRoom room(run, scratch);
      RowPasses passes(count);
      int64_t index = blocks.first;
      for (std::optional<RowPass>& pass : passes) {
        pass.emplace(run, BlockRows(run.problem(), run.plan(), index++),
                     Pass::kAttend, nullptr, room, scratch);
      }
      if (!work(passes, remaining)) return false;
    }
    int64_t index = blocks.first;
    for (Remaining& of_block : remaining) {
      if (!RunRemaining(run, index++, of_block, memory)) return false;
    }
    return true;
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
    const auto in_turn = static_cast<size_t>(
        pass == Pass::kAttend ? run.plan().groups_in_turn : 1);
    Scratch count;
    TileRoom room(run, count);
    const size_t of_room = count.used();
    const RowPass block(run, rows, pass, nullptr, room, count);
    bytes = std::max(bytes, of_room + in_turn * (count.used() - of_room));
  }
  return bytes;
}

bool ComputeRowBlocks(JobRun& run, const Blocks& blocks) {
  return WithMemory(run, blocks, [&run](RowPasses& passes, auto& remaining) {
    if (!RowPass::Sweep(passes, AllKeys(run))) return false;
    for (size_t n = 0; n < passes.size(); ++n) {
      if (!passes[n]->Finish(remaining[n])) return false;
    }
    return true;
  });
}

bool ComputeSplit(JobRun& run, const Blocks& blocks, const KeyRange& keys,
                  float* partial, int64_t apart) {
  return WithMemory(run, blocks, [&](RowPasses& passes, auto& /*remaining*/) {
    if (!RowPass::Sweep(passes, keys)) return false;
    for (size_t n = 0; n < passes.size(); ++n) {
      passes[n]->StoreSplit(partial + static_cast<int64_t>(n) * apart);
    }
    return true;
  });
}

bool MergeSplits(JobRun& run, int64_t index, int64_t splits,
                 const float* partials) {
  return WithMemory(run, {index, 1}, [&](RowPasses& passes, auto& remaining) {
    return passes[0]->RunMerge(partials, splits, remaining[0]);
  });
}

}  // namespace attention::cpu
