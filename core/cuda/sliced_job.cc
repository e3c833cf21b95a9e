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

template <typename View>
void TakeEntries(View& view, int64_t first, int64_t count) {
  view.data += first * view.strides[0];
  view.shape[0] = count;
}

void TakeEntries(std::optional<TensorView>& view, int64_t first,
                 int64_t count) {
  if (view) TakeEntries(*view, first, count);
}

ValidatedProblem EntriesOf(const ValidatedProblem& problem, int64_t first,
                           int64_t count) {
  ValidatedProblem slice = problem;
  slice.batch = count;
  TakeEntries(slice.query, first, count);
  for (ValidatedProblem::Block& block : slice.key_value) {
    TakeEntries(block.key, first, count);
    TakeEntries(block.value, first, count);
  }
  TakeEntries(slice.valid_lens, first, count);
  TakeEntries(slice.attend_mask, first, count);
  TakeEntries(slice.bias, first, count);
  TakeEntries(slice.query_offsets, first, count);
  TakeEntries(slice.alibi_slopes, first, count);
  TakeEntries(slice.sinks, first, count);
  return slice;
}

// Results are row-major; a rank below 3 has one entry, which is never cut.
AttentionOutputs EntriesOf(const AttentionOutputs& outputs,
                           const WantedOutputs& wanted, int64_t first,
                           int64_t count) {
  AttentionOutputs slice = outputs;
  TakeEntries(slice.output, first, count);
  if (wanted.weights) TakeEntries(slice.weights, first, count);
  if (wanted.lse) TakeEntries(slice.lse, first, count);
  return slice;
}

bool IsShared(const std::optional<TensorView>& view) {
  return view && view->strides[0] == 0;
}

// Bytes of what every slice needs.
int64_t SharedBytes(const ValidatedProblem& problem, const Plan& plan) {
  return plan.query_matrix.bytes + plan.key_matrix.bytes +
         plan.term_weights.bytes +
         (IsShared(problem.attend_mask) ? plan.attend_mask.bytes : 0) +
         (IsShared(problem.bias) ? plan.bias.bytes : 0);
}

// Bytes that go to the device and come from it.
int64_t MovedBytes(const Plan& plan) {
  return plan.query.bytes + plan.key.bytes + plan.value.bytes +
         plan.key_ranges.bytes + plan.attend_mask.bytes + plan.bias.bytes +
         plan.output.bytes + plan.weights.bytes + plan.lse.bytes;
}

}  // namespace

int64_t EntriesOfSlice(const ValidatedProblem& problem, const Plan& plan,
                       const PlanOptions& options) {
  const int64_t moved = MovedBytes(plan);
  const bool whole = problem.batch < 2 || problem.dropout.p > 0 ||
                     moved <= options.slice_bytes ||
                     plan.method == Method::kNothing;
  if (whole) return problem.batch;
  const int64_t of_entry = std::max<int64_t>(1, moved / problem.batch);
  const int64_t entries =
      std::clamp<int64_t>(options.slice_bytes / of_entry, 1, problem.batch);
  const int64_t slices = CeilDivide(problem.batch, entries);
  const int64_t most_shared = moved / kLeastShare / slices;
  return SharedBytes(problem, plan) > most_shared ? problem.batch : entries;
}

// Some entries on their way through one of the streams.
class SlicedJob::Slice {
 public:
  Slice(const SlicedJob& whole, int64_t first, Stream& stream,
        std::byte* memory)
      : count_(std::min(whole.entries_, whole.job_.problem->batch - first)),
        problem_(EntriesOf(*whole.job_.problem, first, count_)),
        plan_(MakePlan(problem_, whole.device_.properties(), whole.options_)) {
    part_.problem = &problem_;
    part_.outputs =
        EntriesOf(whole.job_.outputs, problem_.wanted, first, count_);
    part_.stop = whole.job_.stop;
    job_.emplace(part_, whole.context_, plan_, whole.device_, stream, memory);
  }
  Slice(const Slice&) = delete;
  Slice& operator=(const Slice&) = delete;

  const AttentionJob& part() const { return part_; }
  const absl::Status& Begin() { return status_ = job_->Begin(); }
  absl::Status End() { return job_->End(std::move(status_)); }

 private:
  const int64_t count_;
  const ValidatedProblem problem_;
  const Plan plan_;
  AttentionJob part_;
  std::optional<CudaJob> job_;
  absl::Status status_;
};

SlicedJob::SlicedJob(AttentionJob& job, const RunContext& context,
                     Device& device, const PlanOptions& options,
                     int64_t entries)
    : job_(job),
      context_(context),
      device_(device),
      options_(options),
      entries_(entries) {
  // The first one is as large as any.
  slice_bytes_ = MakePlan(EntriesOf(*job.problem, 0, entries),
                          device.properties(), options)
                     .bytes;
}

absl::Status SlicedJob::Run(const std::array<Stream*, 2>& streams,
                            std::byte* memory) {
  absl::Status status;
  std::unique_ptr<Slice> before;
  const auto end = [&](Slice& slice) {
    const absl::Status ended = slice.End();
    job_.tiles_computed += slice.part().tiles_computed;
    if (status.ok()) status = ended;
  };
  job_.tiles_total = job_.tiles_computed = 0;
  int64_t n = 0;
  for (int64_t first = 0; first < job_.problem->batch && status.ok();
       first += entries_, ++n) {
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
