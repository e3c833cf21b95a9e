#include "core/cpu/job_run.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cpu/block_rows.h"
#include "core/cpu/flush_subnormals.h"
#include "core/cpu/kernels/bf16/products.h"
#include "core/cpu/rows/row_block.h"
#include "core/cpu/scoring_traits.h"
#include "core/cpu/small_problem.h"

namespace attention::cpu {
namespace {

// So many, and threads hardly wait for the last one: a guess.
constexpr int64_t kPiecesOfThread = 8;

}  // namespace

JobRun::JobRun(AttentionJob& job, const RunContext& context,
               const Kernels& kernels)
    : job_(job),
      problem_(*job.problem),
      context_(context),
      kernels_(kernels),
      plan_(MakePlan(problem_, kernels)),
      places_(problem_, job.outputs),
      key_sums_(problem_, plan_),
      small_(HasSmallEntries(problem_)) {}

double JobRun::Multiplications() const {
  return static_cast<double>(problem_.batch) *
         static_cast<double>(problem_.query_heads) *
         static_cast<double>(problem_.query_length) *
         static_cast<double>(problem_.key_length) *
         static_cast<double>(problem_.key_width + problem_.value_width +
                             problem_.hidden_width);
}

const char* JobRun::KernelName() const {
  if (small_ && !beyond_small_) return kSmallKernel;
  if (plan_.int8_digits) return kernels_.bf16->int8->decode_name;
  if (plan_.bf16_terms == 2) return kernels_.bf16->fp16_name;
  if (plan_.bf16_terms == 1) {
    return plan_.decode ? kernels_.bf16->decode_name : kernels_.bf16->name;
  }
  if (plan_.decode) return "fp32_decode";
  return lost_rows_ ? "fp32_tiles_and_differences" : "fp32_tiles";
}

int64_t JobRun::Begin(double all) {
  if (plan_.blocks() == 0) return 0;
  try {
    scratch_bytes_ = RowBlockBytes(*this);
    if (small_) {
      ExpectTiles(problem_.batch);
      return problem_.batch;
    }
    ExpectTiles(plan_.blocks() * KeyTiles());
    FindKeysOfEntries();
    key_sums_.Allocate();
    if (plan_.splits == 1 && plan_.groups_in_turn == 1) return plan_.chunks();
    const int64_t threads = context_.workers.threads();
    FindSplits(threads == 1
                   ? std::numeric_limits<double>::infinity()
                   : all / static_cast<double>(kPiecesOfThread * threads));
    return static_cast<int64_t>(splits_.size());
  } catch (const std::bad_alloc&) {
    SetOutOfMemory();
    return 0;
  }
}

void JobRun::End() {
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
  job_.kernel = KernelName();
}

// Tiles of keys that a block visits when no mask leaves any out.
int64_t JobRun::KeyTiles() const {
  const int64_t tiles = CeilDivide(problem_.key_length, plan_.key_tile);
  const bool twice = problem_.wanted.AnyOfWeights() && !plan_.keeps_weights;
  return twice ? 2 * tiles : tiles;
}

// Linear in the number of rows: for every block anew it would be quadratic.
void JobRun::FindKeysOfEntries() {
  if (!TraitsOf(problem_).may_lose_rows || !HasRangeMask(problem_) ||
      problem_.window.left) {
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

int64_t JobRun::PieceBytes() {
  if (plan_.blocks() == 0) return 0;
  return static_cast<int64_t>(RowBlockBytes(*this));
}

int64_t JobRun::SharedBytes() const {
  if (plan_.splits == 1 && plan_.groups_in_turn == 1) return key_sums_.Bytes();
  // A list of splits grows by doubling, and is in two places while it does.
  constexpr auto kSplitBytes = static_cast<int64_t>(3 * sizeof(Split));
  return plan_.blocks() * plan_.splits *
         (SplitFloats() * static_cast<int64_t>(sizeof(float)) + kSplitBytes);
}

void JobRun::Compute(const Blocks& blocks) {
  if (!ComputeRowBlocks(*this, blocks)) stopped_ = true;
}

void JobRun::ComputeChunk(int64_t index) {
  key_sums_.Clear(index);
  for (int64_t block = plan_.FirstBlock(index);
       block < plan_.FirstBlock(index + 1); ++block) {
    if (Ended()) return;
    Compute({block, 1});
  }
}

void JobRun::ComputeSmallEntry(int64_t batch) {
  if (!BeginTile()) {
    stopped_ = true;
    return;
  }
  if (ComputeSmall(problem_, places_, kernels_, batch, batch + 1)) return;
  beyond_small_ = true;
  // So few keys are not split, and blocks are entry after entry.
  const int64_t blocks = BlocksOfEntry();
  ExpectTiles(blocks * KeyTiles());
  for (int64_t n = 0; n < blocks && !Ended(); ++n) {
    Compute({batch * blocks + n, 1});
  }
}

// Of an entry that decodes: its blocks attend the same keys.
KeyRange JobRun::KeysOfEntry(int64_t batch) const {
  return KeysOfRows(problem_,
                    BlockRows(problem_, plan_, batch * BlocksOfEntry()));
}

double JobRun::AttendedBy(int64_t blocks, const KeyRange& keys) const {
  return static_cast<double>(blocks * plan_.rows_per_group) *
         static_cast<double>(std::max<int64_t>(0, keys.end - keys.begin)) *
         static_cast<double>(problem_.key_width + problem_.value_width);
}

double JobRun::Attended() const {
  if (plan_.groups_in_turn == 1) return Multiplications();
  double sum = 0;
  for (int64_t batch = 0; batch < problem_.batch; ++batch) {
    sum += AttendedBy(BlocksOfEntry(), KeysOfEntry(batch));
  }
  return sum;
}

// Blocks that take turns are one piece, which attends no more than `most`
// unless it is one block: other threads would wait for its end.
void JobRun::FindSplits(double most) {
  int64_t states = 0;
  for (int64_t batch = 0; batch < problem_.batch; ++batch) {
    const KeyRange keys = KeysOfEntry(batch);
    const int64_t count = plan_.SplitsOf(keys);
    const double of_block = AttendedBy(1, keys) / static_cast<double>(count);
    const auto in_turn = static_cast<int64_t>(
        std::clamp(most / std::max(of_block, 1.0), 1.0,
                   static_cast<double>(plan_.groups_in_turn)));
    for (int64_t first = 0; first < BlocksOfEntry(); first += in_turn) {
      const Blocks blocks = {batch * BlocksOfEntry() + first,
                             std::min(in_turn, BlocksOfEntry() - first)};
      for (int64_t split = 0; split < count; ++split) {
        splits_.push_back({.blocks = blocks,
                           .count = count,
                           .number = split,
                           .state = states,
                           .keys = plan_.SplitKeys(keys, split)});
      }
      if (count > 1) states += blocks.count * count;
    }
  }
  partials_.reset(new float[static_cast<size_t>(states * SplitFloats())]);
}

int64_t JobRun::merges() const {
  return splits_.empty() ? key_sums_.heads()
                         : static_cast<int64_t>(splits_.size());
}

// Blocks of one split are computed at once, beside the splits of the others.
void JobRun::ComputePiece(int64_t index) {
  if (Ended()) return;
  if (small_) return ComputeSmallEntry(index);
  if (splits_.empty()) return ComputeChunk(index);
  const Split& split = splits_[static_cast<size_t>(index)];
  if (split.count == 1) return Compute(split.blocks);
  if (!ComputeSplit(*this, split.blocks, split.keys,
                    PartialOf(split.state + split.number),
                    split.count * SplitFloats())) {
    stopped_ = true;
  }
}

void JobRun::ComputeMerge(int64_t index) {
  if (splits_.empty()) {
    if (!Ended()) key_sums_.Store(index, places_);
    return;
  }
  const Split& split = splits_[static_cast<size_t>(index)];
  if (split.count == 1) return;
  // The splits of a piece share its blocks among them.
  for (int64_t n = split.number; n < split.blocks.count && !Ended();
       n += split.count) {
    if (!MergeSplits(*this, split.blocks.first + n, split.count,
                     PartialOf(split.state + n * split.count))) {
      stopped_ = true;
    }
  }
}

bool JobRun::BeginTile() {
  if (job_.stop.stop_requested()) return false;
  computed_.fetch_add(1, std::memory_order_relaxed);
  if (context_.on_tile) context_.on_tile();
  GiveWay();
  return true;
}

bool JobRun::Pause() {
  GiveWay();
  return !job_.stop.stop_requested();
}

void JobRun::GiveWay() {
  if (!job_.before_tile) return;
  // Another job's numbers must not depend on what it interrupts.
  const KeepSubnormals as_usual;
  job_.before_tile();
}

}  // namespace attention::cpu
