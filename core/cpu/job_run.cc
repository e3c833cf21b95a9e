#include "core/cpu/job_run.h"

#include <algorithm>
#include <memory>
#include <new>

#include "absl/strings/str_cat.h"
#include "core/cpu/bf16_products.h"
#include "core/cpu/row_block.h"
#include "core/reference/row_tile.h"

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
      plan_(MakePlan(problem_, kernels)),
      zero_rows_(problem_),
      tiny_values_(problem_, kernels_) {}

const char* JobRun::KernelName() const {
  return plan_.bf16 ? kernels_.bf16->name : "fp32_tiles";
}

void JobRun::Run() {
  if (!plan_.fits) {
    ComputeUnplanned();
  } else {
    ExpectTiles(plan_.blocks() * KeyTiles());
    if (plan_.blocks() > 0) scratch_bytes_ = RowBlockBytes(*this);
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
  const int64_t keys =
      plan_.fits ? plan_.key_tile : reference::ChooseTileSizes(problem_).keys;
  int64_t tiles = 0;
  for (const auto& block : problem_.key_value) {
    tiles += (block.key_count + keys - 1) / keys;
  }
  return problem_.wanted.weights && !plan_.keeps_weights ? 2 * tiles : tiles;
}

void JobRun::ComputeBlock(int64_t index) {
  if (stopped_ || out_of_memory_) return;
  if (!ComputeRowBlock(*this, index)) stopped_ = true;
}

void JobRun::ComputeBySplits() {
  const int64_t block_floats = plan_.row_block * plan_.partial_floats();
  const int64_t pieces = plan_.blocks() * plan_.splits;
  const std::unique_ptr<float[]> partials(
      new (std::nothrow) float[static_cast<size_t>(pieces * block_floats)]);
  if (partials == nullptr) {
    out_of_memory_ = true;
    return;
  }
  context_.workers.ParallelFor(pieces, job_.stop, [&](int64_t piece) {
    if (stopped_ || out_of_memory_) return;
    if (!ComputeSplit(*this, piece / plan_.splits, piece % plan_.splits,
                      &partials[static_cast<size_t>(piece * block_floats)])) {
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

// What the kernels have no memory or no numbers for: as the reference does.
void JobRun::ComputeUnplanned() {
  const reference::TileSizes sizes = reference::ChooseTileSizes(problem_);
  const int64_t rows = problem_.query_length;
  const int64_t per_head = (rows + sizes.rows - 1) / sizes.rows;
  const int64_t pieces = problem_.batch * problem_.query_heads * per_head;
  ExpectTiles(pieces * KeyTiles());
  context_.workers.ParallelFor(pieces, job_.stop, [&](int64_t piece) {
    if (stopped_ || out_of_memory_) return;
    const int64_t first = piece % per_head * sizes.rows;
    const int64_t head = piece / per_head;
    try {
      reference::RowTile tile(problem_, sizes, head / problem_.query_heads,
                              head % problem_.query_heads, first,
                              std::min(sizes.rows, rows - first));
      if (!tile.Run(job_.outputs, [this] { return BeginTile(); })) {
        stopped_ = true;
      }
    } catch (const std::bad_alloc&) {
      out_of_memory_ = true;
    }
  });
}

bool JobRun::BeginTile() {
  if (job_.stop.stop_requested()) return false;
  computed_.fetch_add(1, std::memory_order_relaxed);
  if (context_.on_tile) context_.on_tile();
  return true;
}

}  // namespace attention::cpu
