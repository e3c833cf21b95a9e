#include "core/cuda/sliced_job.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/cuda/cuda_job.h"
#include "core/cuda/scoring.h"
#include "core/validate_parts.h"

namespace attention::cuda {
namespace {

using Range = Slice::Range;

// Slices bring what their entries share once each: no more than this part of
// all that is brought.
constexpr int64_t kLeastShare = 8;
// Rows are cut between tiles of every kernel, and never so that fewer are left:
// keys are not split then.
constexpr int64_t kRowUnit = kWgmmaRows;
static_assert(kRowUnit % (2 * kAttendRows) == 0 &&
              kRowUnit % MmaMostRows(64) == 0);

Range QueryHeads(const ValidatedProblem& problem, const Range& kv_heads) {
  const int64_t each = problem.query_heads / problem.kv_heads;
  return {kv_heads.first * each, kv_heads.count * each};
}

// Leaves a range of a view's first extents each.
template <typename View>
void Take(View& view, std::initializer_list<Range> ranges) {
  size_t extent = 0;
  for (const Range& range : ranges) {
    // Results without elements may have no memory.
    if (view.data != nullptr) view.data += range.first * view.strides[extent];
    view.shape[extent++] = range.count;
  }
}

void Take(std::optional<TensorView>& view,
          std::initializer_list<Range> ranges) {
  if (view) Take(*view, ranges);
}

ValidatedProblem ProblemOf(const ValidatedProblem& whole, const Slice& slice) {
  ValidatedProblem part = whole;
  const auto& [entries, kv_heads, rows] = slice;
  const Range heads = QueryHeads(whole, kv_heads);
  part.batch = entries.count;
  part.kv_heads = kv_heads.count;
  part.query_heads = heads.count;
  part.query_length = rows.count;
  // Rows stand further behind, by their first one's index.
  part.key_position -= rows.first;
  Take(part.query, {entries, heads, rows});
  for (ValidatedProblem::Block& block : part.key_value) {
    Take(block.key, {entries, kv_heads});
    Take(block.value, {entries, kv_heads});
  }
  Take(part.valid_lens, {entries, rows});
  Take(part.query_offsets, {entries});
  Take(part.attend_mask, {entries, heads, rows});
  Take(part.bias, {entries, heads, rows});
  Take(part.alibi_slopes, {entries, heads});
  Take(part.sinks, {entries, heads});
  return part;
}

AttentionOutputs OutputsOf(const AttentionOutputs& outputs,
                           const ValidatedProblem& whole, const Slice& slice) {
  AttentionOutputs part = outputs;
  const Range heads = QueryHeads(whole, slice.kv_heads);
  const auto take = [&](MutableTensorView& view, int rank) {
    // Entries come first, then heads.
    view = internal::AddExtents(std::move(view), rank);
    Take(view, {slice.entries, heads, slice.rows});
  };
  take(part.output, 4);
  if (whole.wanted.weights) take(part.weights, 4);
  if (whole.wanted.lse) take(part.lse, 3);
  return part;
}

bool IsShared(const std::optional<TensorView>& view, bool of_heads) {
  return view && view->strides[of_heads ? 1 : 0] == 0;
}

// Bytes of what every slice needs.
int64_t SharedBytes(const ValidatedProblem& problem, const Plan& plan,
                    bool of_heads) {
  return plan.query_matrix.bytes + plan.key_matrix.bytes +
         plan.term_weights.bytes + (of_heads ? plan.key_ranges.bytes : 0) +
         (IsShared(problem.attend_mask, of_heads) ? plan.attend_mask.bytes
                                                  : 0) +
         (IsShared(problem.bias, of_heads) ? plan.bias.bytes : 0);
}

// Whether heads of one batch entry have the bits that they have beside others:
// how keys are split and how products are summed follows from their number, and
// so do parameters of their own.
bool HeadsStandAlone(const Plan& plan, const PlanOptions& options) {
  return (plan.method == Method::kMma || plan.method == Method::kTiles) &&
         plan.args.query_length >= options.few_rows &&
         plan.query_matrix.bytes + plan.key_matrix.bytes +
                 plan.term_weights.bytes ==
             0;
}

// Bytes that go to the device and come from it.
int64_t MovedBytes(const Plan& plan) {
  return plan.query.bytes + plan.key.bytes + plan.value.bytes +
         plan.key_ranges.bytes + plan.attend_mask.bytes + plan.bias.bytes +
         plan.output.bytes + plan.weights.bytes + plan.lse.bytes;
}

// Multiply-adds of scores and of weighted values. Narrow rows cost as much as
// those of kAttendDepth, which kernels compute in any case.
double WorkOf(const AttentionArgs& args) {
  const auto width = [](const Rows& rows) {
    return static_cast<double>(std::max<int64_t>(rows.width, kAttendDepth));
  };
  const auto strips = static_cast<double>(ValueStrips(args));
  const double pair = width(args.key) * WorkOfTerm(args.score) * strips;
  return static_cast<double>(ResultRows(args)) *
         static_cast<double>(args.key_length) * (pair + width(args.value));
}

// A share of `total`, at least one.
int64_t CountOf(int64_t total, double share) {
  const double count = static_cast<double>(total) * std::min(share, 1.0);
  return std::max<int64_t>(1, static_cast<int64_t>(count));
}

// Ranges of `count`. The last one has what is left, and never less than
// `least`.
std::vector<Range> Cut(int64_t total, int64_t count, int64_t least) {
  std::vector<Range> ranges;
  for (int64_t first = 0; first < total; first += ranges.back().count) {
    const int64_t left = total - first;
    ranges.push_back({first, left - count < least ? left : count});
  }
  return ranges;
}

// Rows of a slice, where whole ones have `work`.
int64_t RowsOf(const Plan& plan, double work, const PlanOptions& options) {
  const int64_t rows = plan.args.query_length;
  // Its products are of bands of rows in any case.
  if (work <= options.slice_work || plan.method == Method::kGemm) return rows;
  return std::max<int64_t>(
             1, CountOf(rows, options.slice_work / work) / kRowUnit) *
         kRowUnit;
}

Plan PlanOf(const ValidatedProblem& part, const AttentionOutputs& outputs,
            const Slice& slice, const Device& device,
            const PlanOptions& options) {
  Plan plan =
      MakePlan(part, device.properties(), options, InPlaceOf(part, outputs));
  plan.args.dropout.first_entry += slice.entries.first;
  plan.args.dropout.first_head = QueryHeads(part, slice.kv_heads).first;
  plan.args.dropout.first_row = slice.rows.first;
  return plan;
}

}  // namespace

std::vector<Slice> SlicesOf(const ValidatedProblem& problem, const Plan& plan,
                            const PlanOptions& options) {
  const Range all_entries = {0, problem.batch};
  const Range all_heads = {0, problem.kv_heads};
  const Range all_rows = {0, problem.query_length};
  if (plan.method == Method::kNothing) {
    return {{all_entries, all_heads, all_rows}};
  }
  const bool of_heads = problem.batch == 1 && HeadsStandAlone(plan, options);
  const int64_t total = of_heads ? problem.kv_heads : problem.batch;
  const auto moved = static_cast<double>(MovedBytes(plan));
  const double work = WorkOf(plan.args);
  int64_t count =
      CountOf(total, std::min(static_cast<double>(options.slice_bytes) / moved,
                              options.slice_work / work));
  const auto slices = static_cast<double>(CeilDivide(total, count));
  const auto shared = static_cast<double>(SharedBytes(problem, plan, of_heads));
  if (work <= options.slice_work && shared > moved / kLeastShare / slices) {
    count = total;
  }
  const double of_slice =
      work * static_cast<double>(count) / static_cast<double>(total);
  const std::vector<Range> rows =
      Cut(problem.query_length, RowsOf(plan, of_slice, options), kRowUnit);
  std::vector<Slice> all;
  for (const Range& range : Cut(total, count, 1)) {
    for (const Range& of_rows : rows) {
      all.push_back({of_heads ? all_entries : range,
                     of_heads ? range : all_heads, of_rows});
    }
  }
  return all;
}

// A slice on its way through one of the streams.
class SlicedJob::Part {
 public:
  Part(const SlicedJob& whole, const Slice& slice, Stream& stream,
       std::byte* memory)
      : problem_(ProblemOf(*whole.job_.problem, slice)) {
    job_.problem = &problem_;
    job_.outputs = OutputsOf(whole.job_.outputs, *whole.job_.problem, slice);
    job_.stop = whole.job_.stop;
    job_.look = whole.job_.look;
    plan_ =
        PlanOf(problem_, job_.outputs, slice, whole.device_, whole.options_);
    run_.emplace(job_, whole.context_, plan_, whole.device_, stream, memory);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  const AttentionJob& job() const { return job_; }
  const absl::Status& Begin() { return status_ = run_->Begin(); }
  absl::Status End() { return run_->End(std::move(status_)); }

 private:
  const ValidatedProblem problem_;
  AttentionJob job_;
  Plan plan_;
  std::optional<CudaJob> run_;
  absl::Status status_;
};

SlicedJob::SlicedJob(AttentionJob& job, const RunContext& context,
                     Device& device, const PlanOptions& options,
                     std::vector<Slice> slices)
    : job_(job),
      context_(context),
      device_(device),
      options_(options),
      slices_(std::move(slices)) {
  for (const Slice& slice : slices_) {
    const Plan plan = PlanOf(ProblemOf(*job.problem, slice),
                             OutputsOf(job.outputs, *job.problem, slice), slice,
                             device, options);
    slice_bytes_ = std::max(slice_bytes_, plan.bytes);
  }
}

absl::Status SlicedJob::Run(const std::array<Stream*, 2>& streams,
                            std::byte* memory) {
  absl::Status status;
  std::unique_ptr<Part> before;
  const auto end = [&](Part& part) {
    const int64_t planned = part.job().tiles_total;
    const absl::Status ended = part.End();
    job_.tiles_total += part.job().tiles_total - planned;
    job_.tiles_computed += part.job().tiles_computed;
    if (status.ok()) status = ended;
  };
  job_.tiles_total = job_.tiles_computed = 0;
  for (size_t n = 0; n < slices_.size() && status.ok(); ++n) {
    const size_t turn = n % 2;
    auto part = std::make_unique<Part>(
        *this, slices_[n], *streams[turn],
        memory + static_cast<int64_t>(turn) * slice_bytes_);
    status = part->Begin();
    job_.tiles_total += part->job().tiles_total;
    if (before != nullptr) end(*before);
    before = std::move(part);
  }
  if (before != nullptr) end(*before);
  return status;
}

}  // namespace attention::cuda
