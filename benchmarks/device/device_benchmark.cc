// attention-gpu-benchmark: the kernels of the CUDA backend on the first device,
// a row of tab-separated columns for a case: the time of the kernels alone,
// with tensors that lie on the device, and that of a whole call with its
// copies. A case is a process: tests/gpu/run goes on after one that crashed,
// and has PyTorch measured on the same cases.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "benchmarks/device/device_cases.h"
#include "benchmarks/device/device_limits.h"
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
// Rows and columns of the matrices that limits are measured with.
constexpr int64_t kLimitsSize = 8192;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
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

// What PyTorch needs to compute the same.
nlohmann::json Outline(const Case& shape) {
  return {{"batch", shape.batch},
          {"heads", shape.query_heads},
          {"kv_heads", shape.KvHeads()},
          {"queries", shape.query_length},
          {"keys", shape.KeyLength()},
          {"width", shape.width},
          {"type", shape.type},
          {"scoring", shape.scoring},
          {"causal", shape.causal},
          {"window", shape.window},
          {"hidden", shape.HiddenWidth()},
          {"weights", shape.weights},
          {"mask", shape.mask},
          {"bias", shape.bias},
          {"softcap", shape.softcap},
          {"dropout", shape.dropout},
          {"alibi", shape.alibi},
          {"sinks", shape.sinks},
          {"magnitude", shape.magnitude}};
}

struct Measured {
  double seconds = 0;       // of the kernels
  double call_seconds = 0;  // with the copies
};

absl::StatusOr<Measured> Measure(DeviceRun& run, int rounds) {
  absl::Status status = run.Call();
  Measured measured;
  Clock::time_point begin = Clock::now();
  if (status.ok()) status = run.Call();
  measured.call_seconds = SecondsSince(begin);
  begin = Clock::now();
  if (status.ok()) status = run.Compute(1);
  const int repeats =
      std::clamp(static_cast<int>(kSecondsPerRound / SecondsSince(begin)), 1,
                 kMostRepeats);
  std::vector<double> seconds;
  for (int n = 0; n < rounds && status.ok(); ++n) {
    begin = Clock::now();
    status = run.Compute(repeats);
    seconds.push_back(SecondsSince(begin) / repeats);
  }
  if (!status.ok()) return status;
  measured.seconds = Median(seconds);
  return measured;
}

struct Options {
  bool list = false;
  bool limits = false;
  int measured_case = -1;
  bool once = false;
  int64_t longest = 0;
};

// A row of the table, in columns: name, kernel, seconds, seconds of a call,
// floating-point operations, bytes, what failed, the case in JSON.
int MeasureCase(const Options& options, cuda::Device& device,
                cuda::Stream& stream) {
  const std::vector<Case> cases = DeviceCases();
  const auto index = static_cast<size_t>(options.measured_case);
  if (index >= cases.size()) {
    std::cerr << "--case: " << index << " (expected less than " << cases.size()
              << ")\n";
    return 2;
  }
  const Case shape = Shortened(cases[index], options.longest);
  DeviceRun run(shape, device, stream);
  if (options.once) {
    const absl::Status status = run.Call();
    std::cout << status << '\n';
    return status.ok() ? 0 : 1;
  }
  const absl::StatusOr<Measured> measured =
      Measure(run, options.longest > 0 ? 1 : kRounds);
  const Measured found = measured.value_or(Measured());
  std::cout << absl::StrFormat("%s\t%s\t%.9f\t%.9f\t%g\t%g\t%s\t%s",
                               DeviceName(shape), run.kernel(), found.seconds,
                               found.call_seconds, DeviceFlops(shape),
                               shape.Bytes(),
                               measured.ok() ? "" : measured.status().message(),
                               Outline(shape).dump())
            << '\n'
            << std::flush;
  return measured.ok() ? 0 : 1;
}

int PrintLimits(const Options& options, cuda::Device& device,
                cuda::Stream& stream) {
  int failed = 0;
  const int64_t size = options.longest > 0 ? options.longest : kLimitsSize;
  MeasureLimits(device, stream, size, [&](const DeviceLimit& limit) {
    failed += limit.value.ok() ? 0 : 1;
    std::cout << absl::StrFormat("%s\t%s\t%.3f\t%s", limit.name, limit.unit,
                                 limit.value.value_or(0),
                                 limit.value.status().message())
              << '\n'
              << std::flush;
  });
  return failed == 0 ? 0 : 1;
}

int ListCases(const Options& options) {
  for (const Case& shape : DeviceCases()) {
    std::cout << DeviceName(Shortened(shape, options.longest)) << '\n';
  }
  return 0;
}

int Run(const Options& options) {
  if (options.list) return ListCases(options);
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
  if (options.limits) return PrintLimits(options, device, **stream);
  if (options.measured_case >= 0) {
    return MeasureCase(options, device, **stream);
  }
  std::cout << device.properties().name << '\n';
  return 0;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("The CUDA backend's kernels on this machine's first device");
  app.add_flag("--list", options.list, "Print the cases' names, in order");
  app.add_option("--case", options.measured_case, "Measure this one, from 0");
  app.add_flag("--once", options.once,
               "With --case: compute it once, for a profiler");
  app.add_flag("--limits", options.limits,
               "Measure what the device comes to at its best");
  app.add_option("--longest", options.longest,
                 "Lengths and sizes of at most so many (for trials)");
  CLI11_PARSE(app, argc, argv);
  return Run(options);
}

}  // namespace
}  // namespace attention::bench

// NOLINTNEXTLINE(bugprone-exception-escape): ends the program, which is right
int main(int argc, char** argv) { return attention::bench::Main(argc, argv); }
