#include "core/cuda/cuda_job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/cuda/job_transfer.h"

namespace attention::cuda {
namespace {

int64_t Pieces(const LaunchShape& shape, int64_t most) {
  return CeilDivide(shape.blocks, most);
}

int64_t RowsOfLane(const AttentionArgs& args) {
  return args.query_heads / args.key.heads * args.query_length;
}

// Bytes of `elements` of a type.
int64_t Bytes(Element type, int64_t elements) {
  return elements * ElementBytes(type);
}

const std::byte* Offset(const void* data, int64_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}

ProductType ProductTypeOf(Element type) {
  switch (type) {
    case Element::kFloat16:
      return ProductType::kFloat16;
    case Element::kBFloat16:
      return ProductType::kBfloat16;
    default:
      return ProductType::kFloat32;
  }
}

}  // namespace

CudaJob::CudaJob(AttentionJob& job, const RunContext& context, const Plan& plan,
                 Device& device, Stream& stream, std::byte* memory)
    : job_(job),
      problem_(*job.problem),
      context_(context),
      plan_(plan),
      kernels_(device.kernels()),
      stream_(stream),
      memory_(memory),
      args_(plan.args) {
  SetPointers();
}

absl::Status CudaJob::Run() { return End(Begin()); }

absl::Status CudaJob::Begin() {
  job_.tiles_total = ExpectedLaunches();
  job_.tiles_computed = 0;
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
  const absl::Status done = stream_.Synchronize();
  const bool told = !status.ok() && !absl::IsCancelled(status);
  return told || done.ok() ? status : done;
}

absl::Status CudaJob::Upload() {
  return UploadInputs(problem_, plan_, kernels_, stream_, memory_);
}

absl::Status CudaJob::Compute() {
  absl::Status status;
  if (plan_.careful_rows.bytes > 0) {
    status = stream_.Fill(At(plan_.careful_rows), 0, plan_.careful_rows.bytes);
  }
  if (status.ok()) status = Project();
  if (status.ok() && plan_.method == Method::kProducts) {
    status = Products();
  } else if (status.ok() && plan_.method != Method::kCareful) {
    status = Attend();
  }
  if (status.ok()) status = Careful();
  return status;
}

const void* CudaJob::QueryData() const {
  return plan_.in_place.query ? problem_.query.data : At(plan_.query);
}

const void* CudaJob::KeyData() const {
  return plan_.in_place.key ? problem_.key_value[0].key.data : At(plan_.key);
}

void CudaJob::SetPointers() {
  const InPlace& in_place = plan_.in_place;
  const AttentionOutputs& outputs = job_.outputs;
  args_.query.data =
      plan_.project_query ? At(plan_.projected_query) : QueryData();
  args_.key.data = plan_.project_key ? At(plan_.projected_key) : KeyData();
  args_.value.data =
      in_place.value ? problem_.key_value[0].value.data : At(plan_.value);
  args_.tanh_weights = At<float>(plan_.tanh_weights);
  args_.key_ranges = At<KeySpan>(plan_.key_ranges);
  args_.attend_mask.data = At(plan_.attend_mask);
  args_.bias.data = in_place.bias ? problem_.bias->data : At(plan_.bias);
  args_.output = in_place.output ? outputs.output.data : At(plan_.output);
  args_.lse = in_place.lse ? reinterpret_cast<float*>(outputs.lse.data)
                           : At<float>(plan_.lse);
  args_.weights = in_place.weights
                      ? reinterpret_cast<float*>(outputs.weights.data)
                      : At<float>(plan_.weights);
  args_.careful_rows = At<uint8_t>(plan_.careful_rows);
  args_.row_max = At<float>(plan_.row_max);
  args_.row_sum = At<float>(plan_.row_sum);
  args_.partials = At<float>(plan_.partials);
}

int64_t CudaJob::ExpectedLaunches() const {
  const AttentionArgs& args = plan_.args;
  int64_t launches = Pieces(CarefulShape(args), plan_.careful_blocks);
  if (plan_.project_query) {
    launches +=
        Pieces(ProjectShape(*plan_.project_query), plan_.project_query_blocks);
  }
  if (plan_.project_key) {
    launches +=
        Pieces(ProjectShape(*plan_.project_key), plan_.project_key_blocks);
  }
  switch (plan_.method) {
    case Method::kTiles:
      launches += Pieces(AttendShape(args), plan_.attend_blocks);
      break;
    case Method::kMma:
      launches += Pieces(MmaShape(args), plan_.attend_blocks);
      break;
    case Method::kProducts: {
      const int64_t lane = RowsOfLane(args);
      const int64_t lanes = args.key.heads;
      const int64_t of_entry =
          plan_.product_rows >= lane
              ? CeilDivide(lanes, plan_.product_rows / lane)
              : lanes * CeilDivide(lane, plan_.product_rows);
      return launches + args.batch * of_entry;
    }
    case Method::kCareful:
    case Method::kNothing:
      return launches;
  }
  if (args.splits > 1) {
    launches += Pieces(MergeShape(args), plan_.attend_blocks);
  }
  if (problem_.wanted.weights) {
    launches += Pieces(WeightsShape(args), plan_.weights_blocks);
  }
  return launches;
}

absl::Status CudaJob::BeginLaunch() {
  if (job_.stop.stop_requested()) {
    return absl::CancelledError(absl::StrCat("stopped after ",
                                             job_.tiles_computed, " of ",
                                             job_.tiles_total, " tiles"));
  }
  ++job_.tiles_computed;
  if (context_.on_tile) context_.on_tile();
  return absl::OkStatus();
}

absl::Status CudaJob::Launch(
    absl::string_view kernel, LaunchShape shape, int64_t most,
    absl::FunctionRef<int(const LaunchShape&)> launch) {
  const int64_t blocks = shape.blocks;
  for (int64_t first = 0; first < blocks; first += most) {
    if (absl::Status status = BeginLaunch(); !status.ok()) return status;
    shape.first_block = first;
    shape.blocks = std::min(most, blocks - first);
    absl::Status status = stream_.Launched(kernel, launch(shape));
    if (!status.ok()) return status;
    if (blocks <= most) break;
    // No more than two pieces under way, so that a stop is not far off.
    const int mark = static_cast<int>(first / most % Stream::kBuffers);
    status = stream_.Mark(mark);
    if (status.ok()) status = stream_.Wait((mark + 1) % Stream::kBuffers);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CudaJob::Project() {
  const auto project = [&](ProjectArgs args, const void* from,
                           const Buffer& matrix, const Buffer& to,
                           int64_t most) {
    args.from.data = from;
    args.matrix = At(matrix);
    args.to = At<double>(to);
    return Launch("project", ProjectShape(args), most,
                  [&](const LaunchShape& shape) {
                    return kernels_.project(args, shape, stream_.handle());
                  });
  };
  absl::Status status;
  if (plan_.project_query) {
    status = project(*plan_.project_query, QueryData(), plan_.query_matrix,
                     plan_.projected_query, plan_.project_query_blocks);
  }
  if (status.ok() && plan_.project_key) {
    status = project(*plan_.project_key, KeyData(), plan_.key_matrix,
                     plan_.projected_key, plan_.project_key_blocks);
  }
  return status;
}

absl::Status CudaJob::Attend() {
  const bool mma = plan_.method == Method::kMma;
  absl::Status status = Launch(
      mma ? "attend_mma" : "attend", mma ? MmaShape(args_) : AttendShape(args_),
      plan_.attend_blocks, [&](const LaunchShape& shape) {
        return mma ? kernels_.attend_mma(args_, shape, stream_.handle())
                   : kernels_.attend(args_, shape, stream_.handle());
      });
  if (status.ok() && args_.splits > 1) {
    status = Launch("merge", MergeShape(args_), plan_.attend_blocks,
                    [&](const LaunchShape& shape) {
                      return kernels_.merge(args_, shape, stream_.handle());
                    });
  }
  if (status.ok() && args_.weights != nullptr) {
    status = Launch("weights", WeightsShape(args_), plan_.weights_blocks,
                    [&](const LaunchShape& shape) {
                      return kernels_.weights(args_, shape, stream_.handle());
                    });
  }
  return status;
}

absl::Status CudaJob::Products() {
  for (int64_t b = 0; b < args_.batch; ++b) {
    if (absl::Status status = ProductsOfEntry(b); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// One batch entry at a time: what cuBLAS chooses follows from how many products
// it is given at once, and an entry's bits must not follow from the others.
absl::Status CudaJob::ProductsOfEntry(int64_t batch) {
  const int64_t lane = RowsOfLane(args_);
  const int64_t lanes = args_.key.heads;
  const int64_t first_row = batch * lanes * lane;
  const int64_t at_once = plan_.product_rows / lane;
  for (int64_t n = 0; n < lanes; n += std::max<int64_t>(at_once, 1)) {
    if (at_once > 0) {
      absl::Status status =
          ProductsOf(first_row + n * lane, lane, std::min(at_once, lanes - n));
      if (!status.ok()) return status;
      continue;
    }
    for (int64_t row = 0; row < lane; row += plan_.product_rows) {
      absl::Status status =
          ProductsOf(first_row + n * lane + row,
                     std::min(plan_.product_rows, lane - row), 1);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

// Columns of rows are summed by themselves, a piece at a time: cuBLAS promises
// no order, and one sum of many loses more than scores have room for where one
// number is much larger than all others (score-inl.h).
absl::Status CudaJob::MultiplyInPieces(MatrixProduct product) {
  constexpr int64_t kDepth = 32;
  const int64_t width = product.k;
  for (int64_t first = 0; first < width; first += kDepth) {
    product.k = std::min(kDepth, width - first);
    product.add = first > 0;
    absl::Status status = stream_.Multiply(product);
    if (!status.ok()) return status;
    const int64_t bytes = Bytes(args_.query.type, product.k);
    product.a = Offset(product.a, bytes);
    product.b = Offset(product.b, bytes);
  }
  return absl::OkStatus();
}

// Rows of `lanes` whole lanes, or of a part of one lane.
absl::Status CudaJob::ProductsOf(int64_t first_row, int64_t lane_rows,
                                 int64_t lanes) {
  if (absl::Status status = BeginLaunch(); !status.ok()) return status;
  const int64_t keys = args_.key_length;
  const int64_t lane = first_row / RowsOfLane(args_);
  const int64_t width = args_.query.width;
  const int64_t value_width = args_.value.width;
  const auto* const values = Offset(
      args_.value.data, Bytes(args_.value.type, lane * keys * value_width));

  MatrixProduct scores;
  scores.type = ProductTypeOf(args_.query.type);
  scores.transpose_b = true;
  scores.m = lane_rows;
  scores.n = keys;
  scores.k = width;
  scores.a =
      Offset(args_.query.data, Bytes(args_.query.type, first_row * width));
  scores.b = Offset(args_.key.data, Bytes(args_.key.type, lane * keys * width));
  scores.c = At<float>(plan_.scores);
  scores.a_row = scores.b_row = width;
  scores.c_row = keys;
  scores.batch = lanes;
  scores.a_matrix = lane_rows * width;
  scores.b_matrix = keys * width;
  scores.c_matrix = lane_rows * keys;
  scores.workspace = At(plan_.workspace);
  absl::Status status = MultiplyInPieces(scores);
  if (!status.ok()) return status;

  SoftmaxRowsArgs softmax;
  softmax.problem = args_;
  softmax.first_row = first_row;
  softmax.rows = lane_rows * lanes;
  softmax.scores = scores.c;
  softmax.score_stride = softmax.probability_stride = keys;
  softmax.probability_type = args_.value.type;
  softmax.probabilities =
      plan_.probabilities.bytes > 0 ? At<void>(plan_.probabilities) : scores.c;
  status = stream_.Launched(
      "softmax_rows", kernels_.softmax_rows(softmax, SoftmaxRowsShape(softmax),
                                            stream_.handle()));
  if (!status.ok()) return status;

  MatrixProduct weighted = scores;
  weighted.transpose_b = false;
  weighted.n = value_width;
  weighted.k = keys;
  weighted.a = softmax.probabilities;
  weighted.b = values;
  weighted.c = At<float>(plan_.product);
  weighted.a_row = keys;
  weighted.b_row = weighted.c_row = value_width;
  weighted.a_matrix = lane_rows * keys;
  weighted.b_matrix = keys * value_width;
  weighted.c_matrix = lane_rows * value_width;
  status = stream_.Multiply(weighted);
  if (!status.ok()) return status;

  FinishOutputArgs finish;
  finish.problem = args_;
  finish.first_row = first_row;
  finish.rows = softmax.rows;
  finish.probability_type = softmax.probability_type;
  finish.product = weighted.c;
  return stream_.Launched(
      "finish_output", kernels_.finish_output(finish, FinishOutputShape(finish),
                                              stream_.handle()));
}

absl::Status CudaJob::Careful() {
  return Launch("careful", CarefulShape(args_), plan_.careful_blocks,
                [&](const LaunchShape& shape) {
                  return kernels_.careful(args_, shape, stream_.handle());
                });
}

absl::Status CudaJob::Download() {
  return DownloadResults(job_, plan_, kernels_, stream_, memory_);
}

}  // namespace attention::cuda
