#include "core/cuda/cuda_job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/cuda/job_transfer.h"

namespace attention::cuda {
namespace {

// Null where there is no such buffer.
template <typename T = std::byte>
T* At(const Buffer& buffer, std::byte* memory) {
  return buffer.bytes == 0 ? nullptr
                           : reinterpret_cast<T*>(memory + buffer.offset);
}

// As the caller gave them, not projected.
const void* QueryData(const ValidatedProblem& problem, const Plan& plan,
                      std::byte* memory) {
  return plan.in_place.query ? problem.query.data : At(plan.query, memory);
}

const void* KeyData(const ValidatedProblem& problem, const Plan& plan,
                    std::byte* memory) {
  return plan.in_place.key ? problem.key_value[0].key.data
                           : At(plan.key, memory);
}

}  // namespace

AttentionArgs ArgsOf(const AttentionJob& job, const Plan& plan,
                     const Stream& stream, std::byte* memory) {
  const ValidatedProblem& problem = *job.problem;
  const InPlace& in_place = plan.in_place;
  const AttentionOutputs& outputs = job.outputs;
  AttentionArgs args = plan.args;
  args.query.data = plan.project_query ? At(plan.projected_query, memory)
                                       : QueryData(problem, plan, memory);
  args.key.data = plan.project_key ? At(plan.projected_key, memory)
                                   : KeyData(problem, plan, memory);
  args.value.data =
      in_place.value ? problem.key_value[0].value.data : At(plan.value, memory);
  args.term_weights = At<float>(plan.term_weights, memory);
  args.key_ranges = At<KeySpan>(plan.key_ranges, memory);
  args.attend_mask.data = At(plan.attend_mask, memory);
  args.bias.data = in_place.bias ? problem.bias->data : At(plan.bias, memory);
  args.alibi_slopes = At<float>(plan.alibi_slopes, memory);
  args.alibi_positions = At<double>(plan.alibi_positions, memory);
  args.sinks = At<float>(plan.sinks, memory);
  args.output = in_place.output ? outputs.output.data : At(plan.output, memory);
  args.lse = in_place.lse ? reinterpret_cast<float*>(outputs.lse.data)
                          : At<float>(plan.lse, memory);
  args.weights = in_place.weights
                     ? reinterpret_cast<float*>(outputs.weights.data)
                     : At<float>(plan.weights, memory);
  args.marks = At<RowMark>(plan.marks, memory);
  args.marked = stream.marked();
  args.row_max = At<float>(plan.row_max, memory);
  args.row_sum = At<float>(plan.row_sum, memory);
  args.partials = At<float>(plan.partials, memory);
  return args;
}

CudaJob::CudaJob(AttentionJob& job, const RunContext& context, const Plan& plan,
                 Device& device, Stream& stream, std::byte* memory)
    : job_(job),
      problem_(*job.problem),
      context_(context),
      plan_(plan),
      kernels_(device.kernels()),
      stream_(stream),
      memory_(memory),
      args_(ArgsOf(job, plan, stream, memory)) {
  SetSteps();
}

absl::Status CudaJob::Run() { return End(Begin()); }

absl::Status CudaJob::Begin() {
  job_.tiles_total = job_.tiles_computed = 0;
  for (const Step& step : steps_) job_.tiles_total += step.launches;
  absl::Status status = Upload();
  return status.ok() ? Compute() : status;
}

absl::Status CudaJob::End(absl::Status begun) {
  absl::Status status = std::move(begun);
  if (status.ok() && job_.stop.stop_requested()) {
    status = absl::CancelledError("stopped after the last tile");
  }
  if (status.ok()) status = Download();
  // The memory is the next job's once this returns.
  absl::Status done = stream_.Synchronize();
  if (status.ok() && done.ok() && recompute_ && *stream_.marked() != 0) {
    status = Recompute();
    done = stream_.Synchronize();
  }
  const bool told = !status.ok() && !absl::IsCancelled(status);
  return told || done.ok() ? status : done;
}

absl::Status CudaJob::Recompute() {
  job_.tiles_total += recompute_->launches;
  absl::Status status = recompute_->run();
  return status.ok() ? Download() : status;
}

absl::Status CudaJob::Upload() {
  return UploadInputs(problem_, plan_, kernels_, stream_, memory_,
                      context_.workers);
}

absl::Status CudaJob::Compute() {
  static_assert(static_cast<int>(RowMark::kNone) == 0);
  *stream_.marked() = 0;
  absl::Status status =
      stream_.Fill(At(plan_.marks, memory_), 0, plan_.marks.bytes);
  for (const Step& step : steps_) {
    if (status.ok()) status = step.run();
  }
  return status;
}

template <typename Args>
CudaJob::Step CudaJob::StepOf(absl::string_view kernel, const Args& args,
                              const LaunchShape& shape, Kernel<Args> launch) {
  const auto run = [this, kernel, args, shape, launch] {
    absl::Status status = BeginLaunch();
    return status.ok()
               ? stream_.Launched(kernel, launch(args, shape, stream_.handle()))
               : status;
  };
  return {1, run};
}

void CudaJob::AddProjection(ProjectArgs args, const void* from,
                            const Buffer& matrix, const Buffer& to) {
  args.from.data = from;
  args.matrix = At(matrix, memory_);
  args.to = At<float>(to, memory_);
  AddStep("project", args, ProjectShape(args), kernels_.project);
}

void CudaJob::SetSteps() {
  if (plan_.project_query) {
    AddProjection(*plan_.project_query, QueryData(problem_, plan_, memory_),
                  plan_.query_matrix, plan_.projected_query);
  }
  if (plan_.project_key) {
    AddProjection(*plan_.project_key, KeyData(problem_, plan_, memory_),
                  plan_.key_matrix, plan_.projected_key);
  }
  switch (plan_.method) {
    case Method::kTiles:
      AddStep("attend", args_, AttendShape(args_), kernels_.attend);
      break;
    case Method::kMma:
      AddStep("attend_mma", args_, MmaShape(args_), kernels_.attend_mma);
      break;
    case Method::kWgmma:
      AddStep("attend_wgmma", args_, WgmmaShape(args_), kernels_.attend_wgmma);
      break;
    case Method::kGemm:
      steps_.push_back({GemmCount(plan_), [this] { return Gemms(); }});
      break;
    case Method::kNothing:
      return;
  }
  if (args_.splits > 1) {
    AddStep("merge", args_, MergeShape(args_), kernels_.merge);
  }
  if (args_.weights != nullptr && plan_.method != Method::kGemm) {
    AddStep("weights", args_, WeightsShape(args_), kernels_.weights);
  }
  AttentionArgs whole = args_;
  whole.splits = 1;
  recompute_ =
      StepOf("recompute", whole, RecomputeShape(whole), kernels_.recompute);
}

absl::Status CudaJob::BeginLaunch() {
  if (job_.look) job_.look();
  if (job_.stop.stop_requested()) {
    return absl::CancelledError(absl::StrCat("stopped after ",
                                             job_.tiles_computed, " of ",
                                             job_.tiles_total, " tiles"));
  }
  ++job_.tiles_computed;
  if (context_.on_tile) context_.on_tile();
  return absl::OkStatus();
}

absl::Status CudaJob::Gemms() {
  const int64_t count = GemmCount(plan_);
  for (int64_t n = 0; n < count; ++n) {
    absl::Status status;
    if (n > 0 && n % plan_.gemm_bands == 0) status = stream_.Synchronize();
    if (status.ok()) status = BeginLaunch();
    if (status.ok()) status = GemmOf(GemmRowsOf(plan_, n));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CudaJob::GemmOf(const GemmRows& rows) {
  Gemm qk = QkGemm(args_, rows);
  qk.c = At<float>(plan_.scores, memory_);
  qk.workspace = At(plan_.workspace, memory_);
  absl::Status status = stream_.Multiply(qk);
  if (!status.ok()) return status;

  SoftmaxRowsArgs softmax;
  softmax.problem = args_;
  softmax.first_row = rows.first;
  softmax.rows = rows.of_group * rows.groups;
  softmax.scores = qk.c;
  softmax.score_stride = softmax.probability_stride = args_.key_length;
  softmax.probability_type = args_.value.type;
  softmax.probabilities = plan_.probabilities.bytes > 0
                              ? At<void>(plan_.probabilities, memory_)
                              : qk.c;
  status = stream_.Launched(
      "softmax_rows", kernels_.softmax_rows(softmax, SoftmaxRowsShape(softmax),
                                            stream_.handle()));
  if (!status.ok()) return status;

  Gemm pv = PvGemm(args_, rows);
  pv.a = softmax.probabilities;
  pv.c = At<float>(plan_.pv, memory_);
  pv.workspace = qk.workspace;
  status = stream_.Multiply(pv);
  if (!status.ok()) return status;

  FinishOutputArgs finish;
  finish.problem = args_;
  finish.first_row = rows.first;
  finish.rows = softmax.rows;
  finish.probability_type = softmax.probability_type;
  finish.pv = pv.c;
  return stream_.Launched(
      "finish_output", kernels_.finish_output(finish, FinishOutputShape(finish),
                                              stream_.handle()));
}

absl::Status CudaJob::Download() {
  return DownloadResults(job_, plan_, kernels_, stream_, memory_);
}

}  // namespace attention::cuda
