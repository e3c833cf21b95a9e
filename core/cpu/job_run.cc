#include "core/cpu/job_run.h"

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cpu/block_rows.h"
#include "core/cpu/flush_subnormals.h"
#include "core/cpu/kernels/bf16/products.h"
#include "core/cpu/rows/row_block.h"
#include "core/cpu/scoring_traits.h"

namespace attention::cpu {
namespace {

// Multiplications below which the calling thread computes alone: handing work
// over would take longer.
constexpr double kFewMultiplications = 32 * 1024;

// One range of a block's keys.
struct Split {
  int64_t block;
  int64_t count;   // of the block's splits
  int64_t number;  // of this one among them
  KeyRange keys;
};
// A list of them grows by doubling, and is in two places while it does.
constexpr auto kSplitBytes = static_cast<int64_t>(3 * sizeof(Split));

bool HasWindow(const ValidatedProblem& problem) {
  return problem.window.left || problem.window.right;
}

bool IsSmall(const ValidatedProblem& problem) {
  return static_cast<double>(problem.batch) *
             static_cast<double>(problem.query_heads) *
             static_cast<double>(problem.query_length) *
             static_cast<double>(problem.key_length) *
             static_cast<double>(problem.key_width + problem.value_width +
                                 problem.hidden_width) <=
         kFewMultiplications;
}

}  // namespace

JobRun::JobRun(AttentionJob& job, const RunContext& context,
               const Kernels& kernels)
    : job_(job),
      problem_(*job.problem),
      context_(context),
      kernels_(kernels),
      plan_(MakePlan(problem_, kernels)) {}

const char* JobRun::KernelName() const {
  if (plan_.bf16) return kernels_.bf16->name;
  if (plan_.decode) return "fp32_decode";
  return lost_rows_ ? "fp32_tiles_and_differences" : "fp32_tiles";
}

void JobRun::Compute() {
  if (plan_.blocks() > 0) {
    ExpectTiles(plan_.blocks() * KeyTiles());
    scratch_bytes_ = RowBlockBytes(*this);
    FindKeysOfEntries();
  }
  if (plan_.splits > 1) {
    ComputeBySplits();
  } else if (IsSmall(problem_)) {
    for (int64_t index = 0; index < plan_.blocks(); ++index) {
      ComputeBlock(index);
    }
  } else {
    context_.workers.ParallelFor(
        plan_.blocks(), job_.stop,
        [this](int64_t index) { ComputeBlock(index); });
  }
}

void JobRun::Run() {
  try {
    Compute();
  } catch (const std::bad_alloc&) {
    SetOutOfMemory();
  }
  job_.tiles_total = expected_;
  job_.tiles_computed = computed_;
  job_.status = absl::OkStatus();
  if (out_of_memory_) {
    job_.status = absl::ResourceExhaustedError("no memory for a tile");
  } else if (stopped_ || job_.stop.stop_requested()) {
    job_.status = absl::CancelledError(
        absl::StrCat("stopped after ", job_.tiles_computed, " of at most ",
                     job_.tiles_total, " tiles"));
  }
}

// Tiles of keys that a block visits when no mask leaves any out.
int64_t JobRun::KeyTiles() const {
  int64_t tiles = 0;
  for (const auto& block : problem_.key_value) {
    tiles += CeilDivide(block.key_count, plan_.key_tile);
  }
  return problem_.wanted.weights && !plan_.keeps_weights ? 2 * tiles : tiles;
}

// Linear in the number of rows: for every block anew it would be quadratic.
void JobRun::FindKeysOfEntries() {
  if (!TraitsOf(problem_).may_lose_rows || !HasRangeMask(problem_) ||
      HasWindow(problem_)) {
    return;
  }
  // Without lengths of each row's own, the last one attends what any other
  // does.
  const bool last_is_all =
      !problem_.valid_lens || problem_.valid_lens->strides[1] == 0;
  const int64_t last = problem_.query_length - 1;
  for (int64_t batch = 0; batch < problem_.batch; ++batch) {
    KeyRange all = {problem_.key_length, 0};
    for (int64_t row = last_is_all ? last : 0; row <= last; ++row) {
      Include(KeysInRange(problem_, batch, row), all);
    }
    keys_of_entries_.push_back(all);
  }
}

KeyRange JobRun::KeysForCentre(int64_t batch, const KeyRange& attended) const {
  return keys_of_entries_.empty()
             ? attended
             : keys_of_entries_[static_cast<size_t>(batch)];
}

int64_t JobRun::WorkingBytes(int64_t of_thread) {
  if (plan_.blocks() == 0) return 0;
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  // A row of values that are not finite comes on top (Values::AddNonFinite).
  const int64_t row =
      problem_.key_length > 0 ? plan_.padded_value_width * kFloat : 0;
  const int64_t block = static_cast<int64_t>(RowBlockBytes(*this)) + row;
  const int64_t threads = std::min<int64_t>(context_.workers.threads(),
                                            plan_.blocks() * plan_.splits);
  const int64_t splits = plan_.splits == 1 ? 0 : plan_.blocks() * plan_.splits;
  return threads * std::max<int64_t>(0, block - of_thread) +
         splits * (SplitFloats() * kFloat + kSplitBytes);
}

void JobRun::ComputeBlock(int64_t index) {
  if (stopped_ || out_of_memory_) return;
  if (!ComputeRowBlock(*this, index)) stopped_ = true;
}

// Blocks of one split are computed at once, beside the splits of the others.
void JobRun::ComputeBySplits() {
  std::vector<Split> splits;
  for (int64_t index = 0; index < plan_.blocks(); ++index) {
    const KeyRange keys =
        KeysOfRows(problem_, BlockRows(problem_, plan_, index));
    const int64_t count = plan_.SplitsOf(keys);
    for (int64_t split = 0; split < count; ++split) {
      splits.push_back({.block = index,
                        .count = count,
                        .number = split,
                        .keys = plan_.SplitKeys(keys, split)});
    }
  }
  const auto count = static_cast<int64_t>(splits.size());
  const std::unique_ptr<float[]> partials(
      new (std::nothrow) float[static_cast<size_t>(count * SplitFloats())]);
  if (partials == nullptr) {
    out_of_memory_ = true;
    return;
  }
  const auto partial_of = [&](int64_t n) {
    return &partials[static_cast<size_t>(n * SplitFloats())];
  };
  context_.workers.ParallelFor(count, job_.stop, [&](int64_t n) {
    const Split& split = splits[static_cast<size_t>(n)];
    if (split.count == 1) return ComputeBlock(split.block);
    if (stopped_ || out_of_memory_) return;
    if (!ComputeSplit(*this, split.block, split.keys, partial_of(n))) {
      stopped_ = true;
    }
  });
  if (job_.stop.stop_requested()) return;
  context_.workers.ParallelFor(count, job_.stop, [&](int64_t n) {
    const Split& split = splits[static_cast<size_t>(n)];
    if (split.count == 1 || split.number > 0 || stopped_ || out_of_memory_) {
      return;
    }
    if (!MergeSplits(*this, split.block, split.count, partial_of(n))) {
      stopped_ = true;
    }
  });
}

bool JobRun::BeginTile() {
  if (job_.stop.stop_requested()) return false;
  computed_.fetch_add(1, std::memory_order_relaxed);
  if (context_.on_tile) context_.on_tile();
  if (job_.before_tile) {
    // Another job's numbers must not depend on what it interrupts.
    const KeepSubnormals as_usual;
    job_.before_tile();
  }
  return true;
}

}  // namespace attention::cpu
