#include "core/cpu/job_run.h"

#include <algorithm>
#include <memory>
#include <new>

#include "absl/strings/str_cat.h"
#include "core/cpu/bf16/products.h"
#include "core/cpu/flush_subnormals.h"
#include "core/cpu/rows/row_block.h"

namespace attention::cpu {
namespace {

// Multiplications below which the calling thread computes alone: handing work
// over would take longer.
constexpr double kFewMultiplications = 32 * 1024;

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

void JobRun::Run() {
  if (plan_.blocks() > 0) {
    ExpectTiles(plan_.blocks() * KeyTiles());
    scratch_bytes_ = RowBlockBytes(*this);
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

int64_t JobRun::PartialFloats() const {
  if (plan_.splits == 1) return 0;
  return plan_.blocks() * plan_.splits * plan_.row_block *
         plan_.partial_floats();
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
  return threads * std::max<int64_t>(0, block - of_thread) +
         PartialFloats() * kFloat;
}

void JobRun::ComputeBlock(int64_t index) {
  if (stopped_ || out_of_memory_) return;
  if (!ComputeRowBlock(*this, index)) stopped_ = true;
}

void JobRun::ComputeBySplits() {
  const int64_t block_floats = plan_.row_block * plan_.partial_floats();
  const int64_t splits = plan_.blocks() * plan_.splits;
  const std::unique_ptr<float[]> partials(
      new (std::nothrow) float[static_cast<size_t>(PartialFloats())]);
  if (partials == nullptr) {
    out_of_memory_ = true;
    return;
  }
  context_.workers.ParallelFor(splits, job_.stop, [&](int64_t split) {
    if (stopped_ || out_of_memory_) return;
    if (!ComputeSplit(*this, split / plan_.splits, split % plan_.splits,
                      &partials[static_cast<size_t>(split * block_floats)])) {
      stopped_ = true;
    }
  });
  if (stopped_ || out_of_memory_ || job_.stop.stop_requested()) return;
  context_.workers.ParallelFor(plan_.blocks(), job_.stop, [&](int64_t index) {
    if (stopped_ || out_of_memory_) return;
    if (!MergeSplits(*this, index,
                     &partials[static_cast<size_t>(index * plan_.splits *
                                                   block_floats)])) {
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
