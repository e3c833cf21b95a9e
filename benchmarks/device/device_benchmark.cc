// attention-gpu-benchmark: the kernels of the CUDA backend on the first device,
// one JSON object per line and case: the time of the kernels alone, with
// tensors that lie on the device, and that of a whole call with its copies.
// tests/gpu/run has PyTorch measured on the same cases.

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "benchmarks/shape.h"
#include "core/cuda/cuda_job.h"
#include "core/cuda/loader.h"
#include "core/tensor.h"
#include "core/validate.h"

namespace attention::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Of each measurement; the median is what counts.
constexpr int kRounds = 7;
constexpr double kSecondsPerRound = 0.1;
constexpr int kMostRepeats = 1000;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* type : {"BF16", "FP16"}) {
    for (const int64_t width : {64, 128}) {
      for (const int64_t length : {1024, 4096, 16384}) {
        for (const bool causal : {false, true}) {
          cases.push_back({.query_length = length,
                           .width = width,
                           .type = type,
                           .causal = causal});
        }
      }
    }
  }
  for (const int64_t length : {1024, 4096}) {
    for (const char* type : {"FP32", "BF16"}) {
      cases.push_back({.query_length = length, .type = type, .weights = true});
    }
    cases.push_back({.query_length = length});
    cases.push_back({.query_length = length, .scoring = "gaussian"});
  }
  cases.push_back({.query_length = 1024, .scoring = "additive"});
  for (const int64_t keys : {8192, 65536}) {
    cases.push_back({.query_heads = 32,
                     .kv_heads = 8,
                     .query_length = 1,
                     .key_length = keys,
                     .width = 128,
                     .type = "BF16"});
  }
  return cases;
}

// A case on the device, ready to be computed again and again.
class DeviceRun {
 public:
  DeviceRun(const Case& shape, cuda::Device& device, cuda::Stream& stream)
      : inputs_(shape),
        problem_(Validate(inputs_.problem()).value()),
        plan_(cuda::MakePlan(problem_, device.properties())),
        device_(device),
        stream_(stream) {
    const auto make = [](DataType type, const Shape& extents, Tensor& tensor) {
      tensor = Tensor::Create(type, extents).value();
      return tensor.mutable_view();
    };
    job_.problem = &problem_;
    job_.outputs.output =
        make(problem_.query.type, problem_.output_shape, output_);
    if (problem_.wanted.weights) {
      job_.outputs.weights =
          make(DataType::kFloat32, problem_.weights_shape, weights_);
    }
    memory_ = device.Allocate(plan_.bytes).value();
  }
  ~DeviceRun() { device_.Free(memory_); }
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;

  absl::string_view kernel() const { return plan_.kernel; }

  absl::Status Call() { return MakeJob().Run(); }

  // The kernels, `repeats` times, with the tensors that a call has brought.
  absl::Status Compute(int repeats) {
    cuda::CudaJob job = MakeJob();
    absl::Status status;
    for (int n = 0; n < repeats && status.ok(); ++n) status = job.Compute();
    return status.ok() ? stream_.Synchronize() : status;
  }

 private:
  cuda::CudaJob MakeJob() {
    return {job_, context_, plan_, device_, stream_, memory_};
  }

  const Inputs inputs_;
  const ValidatedProblem problem_;
  const cuda::Plan plan_;
  cuda::Device& device_;
  cuda::Stream& stream_;
  WorkerPool workers_{1};
  const RunContext context_{workers_};
  Tensor output_, weights_;
  AttentionJob job_;
  std::byte* memory_ = nullptr;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

nlohmann::json Measure(const Case& shape, cuda::Device& device,
                       cuda::Stream& stream) {
  nlohmann::json line = {
      {"name", shape.Name()},          {"batch", shape.batch},
      {"heads", shape.query_heads},    {"kv_heads", shape.KvHeads()},
      {"queries", shape.query_length}, {"keys", shape.KeyLength()},
      {"width", shape.width},          {"type", shape.type},
      {"scoring", shape.scoring},      {"causal", shape.causal},
      {"hidden", shape.HiddenWidth()}, {"weights", shape.weights},
      {"flops", shape.Flops()},        {"device", device.properties().name}};
  DeviceRun run(shape, device, stream);
  line["kernel"] = static_cast<std::string>(run.kernel());
  absl::Status status = run.Call();
  Clock::time_point begin = Clock::now();
  if (status.ok()) status = run.Call();
  line["call_seconds"] = SecondsSince(begin);
  begin = Clock::now();
  if (status.ok()) status = run.Compute(1);
  const int repeats =
      std::clamp(static_cast<int>(kSecondsPerRound / SecondsSince(begin)), 1,
                 kMostRepeats);
  std::vector<double> seconds;
  for (int n = 0; n < kRounds && status.ok(); ++n) {
    begin = Clock::now();
    status = run.Compute(repeats);
    seconds.push_back(SecondsSince(begin) / repeats);
  }
  if (status.ok()) {
    line["seconds"] = Median(seconds);
  } else {
    line["error"] = static_cast<std::string>(status.message());
  }
  return line;
}

int MeasureAll() {
  const absl::StatusOr<cuda::Devices> devices = cuda::OpenDevices();
  if (!devices.ok()) {
    std::cerr << devices.status().message() << '\n';
    return 1;
  }
  cuda::Device& device = *(*devices)[0];
  absl::StatusOr<std::unique_ptr<cuda::Stream>> stream = device.NewStream();
  if (!stream.ok()) {
    std::cerr << stream.status().message() << '\n';
    return 1;
  }
  for (const Case& shape : Cases()) {
    std::cout << Measure(shape, device, **stream).dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace attention::bench

int main() { return attention::bench::MeasureAll(); }
