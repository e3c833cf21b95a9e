#include "core/cost.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <stop_token>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/tensor.h"

namespace attention {
namespace {

// What a tanh costs in multiply-adds.
constexpr double kTanhWork = 16;
// A problem is measured again until so much time is gone; the least counts.
constexpr std::chrono::milliseconds kPatience(10);
constexpr int kMostRuns = 5;

double Elements(const TensorView& view) {
  double elements = 1;
  for (size_t n = 0; n < view.shape.size(); ++n) {
    if (view.strides[n] != 0) elements *= static_cast<double>(view.shape[n]);
  }
  return elements;
}

double BytesOf(const std::optional<TensorView>& view) {
  if (!view) return 0;
  return Elements(*view) * static_cast<double>(ByteSize(view->type));
}

// A problem of one batch entry, as wide in values as in keys.
struct Extents {
  int64_t heads = 1;
  int64_t queries = 1;
  int64_t keys = 1;
  int64_t width = 64;
};

using Clock = std::chrono::steady_clock;

// Who computes, and for how long at most.
struct Measuring {
  const Backend& backend;
  WorkerPool& workers;
  std::chrono::milliseconds patience;
  Clock::time_point end = Clock::now() + patience;

  absl::Status Run(const ValidatedProblem& problem, Tensor& output) const;
};

absl::Status Measuring::Run(const ValidatedProblem& problem,
                            Tensor& output) const {
  std::stop_source stop;
  AttentionJob job;
  job.problem = &problem;
  job.outputs.output = output.mutable_view();
  job.stop = stop.get_token();
  job.look = [&] {
    if (Clock::now() >= end) stop.request_stop();
  };
  backend.Run(absl::MakeSpan(&job, 1), {workers});
  if (!absl::IsCancelled(job.status)) return job.status;
  return absl::DeadlineExceededError(absl::StrCat(
      "no answer within ", patience.count(), " ms: the device hangs"));
}

class Measured {
 public:
  static absl::StatusOr<Measured> Of(const Extents& extents,
                                     const Measuring& with);

  double ns = 0;
  double work = 0;
  double bytes = 0;

  // What is left of the time beside what is known already.
  double Beside(const BackendCost& known) const {
    return std::max(0.0, ns - known.of_problem - work * known.of_multiply_add -
                             bytes * known.of_byte);
  }
};

// Ordinary numbers: memory that was never written to would be one page of it.
absl::StatusOr<Tensor> MakeTensor(const Shape& shape) {
  absl::StatusOr<Tensor> tensor = Tensor::Create(DataType::kFloat32, shape);
  if (tensor.ok()) std::memset(tensor->data(), 0x3C, tensor->byte_size());
  return tensor;
}

absl::StatusOr<Measured> Measured::Of(const Extents& extents,
                                      const Measuring& with) {
  const auto& [heads, queries, keys, width] = extents;
  absl::StatusOr<Tensor> query = MakeTensor({1, heads, queries, width});
  absl::StatusOr<Tensor> key = MakeTensor({1, heads, keys, width});
  absl::StatusOr<Tensor> value = MakeTensor({1, heads, keys, width});
  absl::StatusOr<Tensor> output = MakeTensor({1, heads, queries, width});
  for (const auto* made : {&query, &key, &value, &output}) {
    if (!made->ok()) return made->status();
  }
  AttentionProblem problem;
  problem.query = query->view();
  problem.key_value.push_back({key->view(), value->view()});
  const absl::StatusOr<ValidatedProblem> valid = Validate(problem);
  if (!valid.ok()) return valid.status();
  if (absl::Status status = with.backend.Supports(*valid); !status.ok()) {
    return status;
  }
  using Nanoseconds = std::chrono::duration<double, std::nano>;
  Measured measured;
  measured.work = Work(*valid);
  measured.bytes = Bytes(*valid, with.backend);
  measured.ns = std::numeric_limits<double>::infinity();
  const auto run = [&] { return with.Run(*valid, *output); };
  // The first one sets up what stays: a device, its memory, threads.
  if (absl::Status status = run(); !status.ok()) return status;
  const Clock::time_point begin = Clock::now();
  Clock::time_point now = begin;
  for (int n = 0; n < kMostRuns && now - begin < kPatience; ++n) {
    const Clock::time_point started = now;
    if (absl::Status status = run(); !status.ok()) return status;
    now = Clock::now();
    measured.ns = std::min(measured.ns, Nanoseconds(now - started).count());
  }
  return measured;
}

}  // namespace

// A product that cannot overflow, and is never less than the elements that are
// read or written. Without rows or keys nothing is read, and results are filled
// with one number, row by row: without rows heads may be any number.
double Work(const ValidatedProblem& problem) {
  const auto batch = static_cast<double>(problem.batch);
  const auto key_length = static_cast<double>(problem.key_length);
  const double rows = batch * static_cast<double>(problem.query_heads) *
                      static_cast<double>(problem.query_length);
  if (rows == 0 || key_length == 0) {
    return std::max(rows,
                    static_cast<double>(problem.ResultBytes()) / sizeof(float));
  }
  const double keys =
      batch * static_cast<double>(problem.kv_heads) * key_length;
  const auto hidden = static_cast<double>(problem.hidden_width);
  const auto query_width = static_cast<double>(problem.query_width);
  const auto key_width = static_cast<double>(problem.key_width);
  double work = rows * key_length *
                (query_width + static_cast<double>(problem.value_width) +
                 hidden * kTanhWork);
  work += (rows * query_width + keys * key_width) * hidden;
  if (std::holds_alternative<Bilinear>(problem.scoring)) {
    work += rows * query_width * key_width;
  }
  return work;
}

double Work(absl::Span<const ValidatedProblem> problems) {
  double work = 0;
  for (const ValidatedProblem& problem : problems) work += Work(problem);
  return work;
}

double Bytes(const ValidatedProblem& problem, const Backend& backend) {
  double bytes = BytesOf(problem.query) + BytesOf(problem.attend_mask) +
                 BytesOf(problem.bias) +
                 static_cast<double>(problem.ResultBytes());
  if (backend.KeepsKeys(problem)) return bytes;
  for (const ValidatedProblem::Block& block : problem.key_value) {
    bytes += BytesOf(block.key) + BytesOf(block.value);
  }
  return bytes;
}

double BackendCost::Of(absl::Span<const ValidatedProblem* const> problems,
                       const Backend& backend) const {
  double cost =
      of_problem * static_cast<double>(backend.CountLaunches(problems));
  for (const ValidatedProblem* problem : problems) {
    cost +=
        of_multiply_add * Work(*problem) + of_byte * Bytes(*problem, backend);
  }
  return cost;
}

absl::StatusOr<BackendCost> MeasureCost(const Backend& backend,
                                        WorkerPool& workers,
                                        std::chrono::milliseconds patience) {
  const Measuring with = {backend, workers, patience};
  const auto smallest = Measured::Of({}, with);
  if (!smallest.ok()) return smallest.status();
  const auto decode = Measured::Of({.heads = 8, .keys = 2048}, with);
  if (!decode.ok()) return decode.status();
  const auto prefill =
      Measured::Of({.heads = 16, .queries = 128, .keys = 256}, with);
  if (!prefill.ok()) return prefill.status();
  // Each of two has a little of what the other one is for: once around.
  BackendCost cost = {.of_problem = smallest->ns};
  for (int n = 0; n < 2; ++n) {
    cost.of_byte = 0;
    cost.of_byte = decode->Beside(cost) / decode->bytes;
    cost.of_multiply_add = 0;
    cost.of_multiply_add = prefill->Beside(cost) / prefill->work;
  }
  return cost;
}

}  // namespace attention
