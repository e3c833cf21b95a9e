#include "core/cuda/sliced_job.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "core/cuda/cuda_job.h"

namespace attention::cuda {
namespace {

// Slices bring what their entries share once each: no more than this part of
// all that is brought.
constexpr int64_t kLeastShare = 8;

// Of one extent of the problem's tensors: the batch, or the heads of one entry.
struct Part {
  bool of_heads;
  int64_t first;
  int64_t count;
};

// `each` elements of a view's extent for one of the part.
template <typename View>
void Take(View& view, const Part& part, int64_t each = 1) {
  const size_t extent = part.of_heads ? 1 : 0;
  // Results without elements may have no memory.
  if (view.data != nullptr) {
    view.data += part.first * each * view.strides[extent];
  }
  view.shape[extent] = part.count * each;
}

void Take(std::optional<TensorView>& view, const Part& part, int64_t each = 1) {
  if (view) Take(*view, part, each);
}

// Query heads of a kv head, or 1.
int64_t QueriesOfEach(const ValidatedProblem& problem, bool of_heads) {
  return of_heads ? problem.query_heads / problem.kv_heads : 1;
}

ValidatedProblem PartOf(const ValidatedProblem& problem, const Part& part) {
  ValidatedProblem slice = problem;
  const int64_t each = QueriesOfEach(problem, part.of_heads);
  if (part.of_heads) {
    slice.kv_heads = part.count;
    slice.query_heads = part.count * each;
  } else {
    slice.batch = part.count;
    // Heads have the same.
    Take(slice.valid_lens, part);
    Take(slice.query_offsets, part);
  }
  Take(slice.query, part, each);
  for (ValidatedProblem::Block& block : slice.key_value) {
    Take(block.key, part);
    Take(block.value, part);
  }
  Take(slice.attend_mask, part, each);
  Take(slice.bias, part, each);
  Take(slice.alibi_slopes, part, each);
  Take(slice.sinks, part, each);
  return slice;
}

// Results are row-major; a rank below 3 has one entry, and one below 4 one
// head, which are never cut.
AttentionOutputs PartOf(const AttentionOutputs& outputs,
                        const ValidatedProblem& problem, const Part& part) {
  AttentionOutputs slice = outputs;
  const int64_t each = QueriesOfEach(problem, part.of_heads);
  Take(slice.output, part, each);
  if (problem.wanted.weights) Take(slice.weights, part, each);
  if (problem.wanted.lse) Take(slice.lse, part, each);
  return slice;
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

}  // namespace

Slicing SlicingOf(const ValidatedProblem& problem, const Plan& plan,
                  const PlanOptions& options) {
  const bool of_heads = problem.batch == 1 && HeadsStandAlone(plan, options);
  const int64_t total = of_heads ? problem.kv_heads : problem.batch;
  const Slicing whole = {of_heads, total, total};
  const int64_t moved = MovedBytes(plan);
  if (total < 2 || problem.dropout.p > 0 || moved <= options.slice_bytes ||
      plan.method == Method::kNothing) {
    return whole;
  }
  const int64_t of_one = std::max<int64_t>(1, moved / total);
  const int64_t count =
      std::clamp<int64_t>(options.slice_bytes / of_one, 1, total);
  const int64_t most_shared = moved / kLeastShare / CeilDivide(total, count);
  if (SharedBytes(problem, plan, of_heads) > most_shared) return whole;
  return {of_heads, total, count};
}

// Some entries or heads on their way through one of the streams.
class SlicedJob::Slice {
 public:
  Slice(const SlicedJob& whole, int64_t first, Stream& stream,
        std::byte* memory)
      : taken_{whole.slicing_.of_heads, first,
               std::min(whole.slicing_.count, whole.slicing_.total - first)},
        problem_(PartOf(*whole.job_.problem, taken_)),
        plan_(MakePlan(problem_, whole.device_.properties(), whole.options_)) {
    part_.problem = &problem_;
    part_.outputs = PartOf(whole.job_.outputs, *whole.job_.problem, taken_);
    part_.stop = whole.job_.stop;
    part_.look = whole.job_.look;
    job_.emplace(part_, whole.context_, plan_, whole.device_, stream, memory);
  }
  Slice(const Slice&) = delete;
  Slice& operator=(const Slice&) = delete;

  const AttentionJob& part() const { return part_; }
  const absl::Status& Begin() { return status_ = job_->Begin(); }
  absl::Status End() { return job_->End(std::move(status_)); }

 private:
  const Part taken_;
  const ValidatedProblem problem_;
  const Plan plan_;
  AttentionJob part_;
  std::optional<CudaJob> job_;
  absl::Status status_;
};

SlicedJob::SlicedJob(AttentionJob& job, const RunContext& context,
                     Device& device, const PlanOptions& options,
                     const Slicing& slicing)
    : job_(job),
      context_(context),
      device_(device),
      options_(options),
      slicing_(slicing) {
  // The first one is as large as any.
  const Part first = {slicing.of_heads, 0, slicing.count};
  slice_bytes_ =
      MakePlan(PartOf(*job.problem, first), device.properties(), options).bytes;
}

absl::Status SlicedJob::Run(const std::array<Stream*, 2>& streams,
                            std::byte* memory) {
  absl::Status status;
  std::unique_ptr<Slice> before;
  const auto end = [&](Slice& slice) {
    const int64_t planned = slice.part().tiles_total;
    const absl::Status ended = slice.End();
    job_.tiles_total += slice.part().tiles_total - planned;
    job_.tiles_computed += slice.part().tiles_computed;
    if (status.ok()) status = ended;
  };
  job_.tiles_total = job_.tiles_computed = 0;
  int64_t n = 0;
  for (int64_t first = 0; first < slicing_.total && status.ok();
       first += slicing_.count, ++n) {
    auto slice = std::make_unique<Slice>(*this, first,
                                         *streams[static_cast<size_t>(n % 2)],
                                         memory + n % 2 * slice_bytes_);
    status = slice->Begin();
    job_.tiles_total += slice->part().tiles_total;
    if (before != nullptr) end(*before);
    before = std::move(slice);
  }
  if (before != nullptr) end(*before);
  return status;
}

}  // namespace attention::cuda
