// attention-benchmark: one attention problem, as often as Google Benchmark
// likes, beside the machine's peak rate of multiply-adds and of reading memory.

#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "core/engine.h"
#include "core/validate.h"
#include "tests/benchmarks/machine_limits.h"
#include "tests/benchmarks/shape.h"

namespace attention::bench {
namespace {

Tensor NewTensor(DataType type, const Shape& shape) {
  return Tensor::Create(type, shape).value();
}

// Validation and computation, into result buffers that are reused.
void Attend(benchmark::State& state, const Case& shape) {
  auto engine =
      Engine::Create({.threads = shape.threads, .backend = shape.backend});
  if (!engine.ok())
    return state.SkipWithError(engine.status().ToString().c_str());
  const Inputs inputs(shape);
  const auto first = Validate(inputs.problem());
  if (!first.ok())
    return state.SkipWithError(first.status().ToString().c_str());
  Tensor output = NewTensor(first->query.type, first->output_shape);
  Tensor weights, lse;
  AttentionOutputs outputs;
  outputs.output = output.mutable_view();
  if (shape.weights) {
    weights = NewTensor(DataType::kFloat32, first->weights_shape);
    outputs.weights = weights.mutable_view();
  }
  if (shape.lse) {
    lse = NewTensor(DataType::kFloat32, first->lse_shape);
    outputs.lse = lse.mutable_view();
  }
  for (auto _ : state) {
    const auto valid = Validate(inputs.problem());
    AttentionJob job;
    job.problem = &*valid;
    job.outputs = outputs;
    if (const absl::Status status = (*engine)->Run(job); !status.ok()) {
      return state.SkipWithError(status.ToString().c_str());
    }
    benchmark::DoNotOptimize(output.data());
  }
  using benchmark::Counter;
  state.counters["GFLOP/s"] =
      Counter(shape.Flops() * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] =
      Counter(shape.Bytes() * 1e-9, Counter::kIsIterationInvariantRate);
  state.SetLabel((*engine)->backends()[0]->instruction_set());
}

void PeakMultiplyAdds(benchmark::State& state) {
  float sink = 0;
  double flops = 0;
  for (auto _ : state) flops += MultiplyAdds(100000, &sink);
  benchmark::DoNotOptimize(sink);
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsRate);
  state.SetLabel(LimitsTarget());
}

void MemoryReadRate(benchmark::State& state) {
  const std::vector<float> data(size_t{1} << 28, 1.0F);  // 1 GiB: no cache
  float sink = 0;
  for (auto _ : state) {
    ReadAll(data.data(), static_cast<int64_t>(data.size()), &sink);
  }
  benchmark::DoNotOptimize(sink);
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(data.size()) * 4e-9,
                         benchmark::Counter::kIsIterationInvariantRate);
}

void AddFlags(CLI::App& app, Case& shape, bool& limits) {
  app.add_option("-b,--batch", shape.batch, "B")->capture_default_str();
  app.add_option("--query-heads", shape.query_heads, "Hq")
      ->capture_default_str();
  app.add_option("--kv-heads", shape.kv_heads, "Hkv; 0: Hq");
  app.add_option("--query-length", shape.query_length, "Lq")
      ->capture_default_str();
  app.add_option("--key-length", shape.key_length, "Lk; 0: Lq");
  app.add_option("-d,--width", shape.width, "D")->capture_default_str();
  app.add_option("--value-width", shape.value_width, "Dv; 0: D");
  app.add_option("--hidden-width", shape.hidden_width, "h; 0: D");
  app.add_option("--dtype", shape.type, "of query, key, value and output")
      ->check(CLI::IsMember({"FP32", "FP16", "BF16"}))
      ->capture_default_str();
  app.add_option("--scoring", shape.scoring)
      ->check(CLI::IsMember({"dot", "additive", "gaussian", "bilinear"}))
      ->capture_default_str();
  app.add_flag("--causal", shape.causal, "aligned bottom-right");
  app.add_option("--window", shape.window, "keys to the left of a row's own");
  app.add_option("--valid-lens", shape.mean_length,
                 "mean of lengths spread evenly over the batch");
  app.add_option("--softcap", shape.softcap);
  app.add_flag("--mask", shape.mask, "an attend_mask that takes out 1 of 7");
  app.add_flag("--weights", shape.weights, "return the weights too");
  app.add_flag("--lse", shape.lse, "return the log-sum-exp too");
  app.add_option("--threads", shape.threads)->capture_default_str();
  app.add_option("--backend", shape.backend)
      ->check(CLI::IsMember(BackendNames()))
      ->capture_default_str();
  app.add_flag(
      "--limits", limits,
      "also measure the peak rate of FP32 multiply-adds and of reading "
      "memory, on one core");
}

int Main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);  // takes its own --benchmark_... flags
  CLI::App app{
      "Times one attention problem, validation included. Flags of Google "
      "Benchmark work as well: --benchmark_repetitions=N, "
      "--benchmark_min_time=SECONDS, --benchmark_format=json.\n"
      "GFLOP/s count 4 B Hq Lq Lk D whatever masks leave of it; GB/s count "
      "inputs and output once."};
  Case shape;
  bool limits = false;
  AddFlags(app, shape, limits);
  CLI11_PARSE(app, argc, argv);
  if (limits) {
    benchmark::RegisterBenchmark("peak multiply-adds", PeakMultiplyAdds);
    benchmark::RegisterBenchmark("memory read rate", MemoryReadRate);
  }
  benchmark::RegisterBenchmark(
      shape.Name().c_str(),
      [&shape](benchmark::State& state) { Attend(state, shape); })
      ->UseRealTime();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace attention::bench

int main(int argc, char** argv) { return attention::bench::Main(argc, argv); }
