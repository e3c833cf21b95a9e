// attention-benchmark: one attention problem, as often as Google Benchmark
// likes, beside the machine's peak rate of multiply-adds and of reading memory.

#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/machine_limits.h"
#include "benchmarks/peak_memory.h"
#include "benchmarks/rounds.h"
#include "benchmarks/runner.h"
#include "benchmarks/shape.h"
#include "core/engine.h"

namespace attention::bench {
namespace {

// What to do beside or in place of Google Benchmark's measurement.
struct Modes {
  bool limits = false;
  bool serve_rounds = false;
  bool peak_memory = false;
  std::string save;
  std::string instruction_set;

  bool WithoutGoogleBenchmark() const {
    return serve_rounds || peak_memory || !save.empty();
  }
};

// Validation and computation, into result buffers that are reused.
void Attend(benchmark::State& state, const Case& shape) {
  auto runner = Runner::Create(shape);
  if (!runner.ok()) {
    return state.SkipWithError(runner.status().ToString().c_str());
  }
  while (state.KeepRunning()) {
    if (const absl::Status status = (*runner)->Run(); !status.ok()) {
      return state.SkipWithError(status.ToString().c_str());
    }
    benchmark::DoNotOptimize((*runner)->output().data());
  }
  using benchmark::Counter;
  const auto rate = [&state](const char* name, double each) {
    state.counters[name] =
        Counter(each * 1e-9, Counter::kIsIterationInvariantRate);
  };
  rate("GFLOP/s", shape.Flops());
  rate("GB/s", shape.Bytes());
  const int64_t pairs = (*runner)->PairsTakingPart();
  if (pairs != shape.Pairs()) {
    rate("GFLOP/s of pairs taking part",
         shape.Flops() * static_cast<double>(pairs) /
             static_cast<double>(shape.Pairs()));
  }
  state.SetLabel((*runner)->InstructionSet());
}

// The limits measure their own time, so Google Benchmark only shows them.
void Limit(benchmark::State& state, const char* unit, double rate) {
  while (state.KeepRunning()) {
  }
  state.counters[unit] = rate * 1e-9;
  state.SetLabel(LimitsTarget());
}

int Failed(const absl::Status& status) {
  std::cerr << "attention-benchmark: " << status.message() << "\n";
  return 1;
}

// The modes that do without Google Benchmark.
int RunMode(const Case& shape, const Modes& modes) {
  auto runner = Runner::Create(shape);
  if (!runner.ok()) return Failed(runner.status());
  absl::Status status;
  if (modes.peak_memory) {
    const absl::StatusOr<int64_t> bytes = PeakMemoryOfFirstRun(**runner);
    if (!bytes.ok()) return Failed(bytes.status());
    std::cout << nlohmann::json{{"name", shape.Name()},
                                {"inputs_and_outputs", shape.Bytes()},
                                {"peak_memory_beyond", *bytes},
                                {"threads", shape.threads}}
              << '\n'
              << std::flush;
  }
  if (!modes.save.empty()) {
    status = (*runner)->Run();
    if (status.ok()) status = (*runner)->Save(modes.save);
  }
  if (status.ok() && modes.serve_rounds) {
    status = ServeRounds(shape, **runner, std::cin, std::cout);
  }
  return status.ok() ? 0 : Failed(status);
}

void AddFlags(CLI::App& app, Case& shape, Modes& modes) {
  app.add_option("-b,--batch", shape.batch, "B")->capture_default_str();
  app.add_option("--query-heads", shape.query_heads, "Hq")
      ->capture_default_str();
  app.add_option("--kv-heads", shape.kv_heads, "Hkv; 0: Hq");
  app.add_option("--query-length", shape.query_length, "Lq")
      ->capture_default_str();
  app.add_option("--key-length", shape.key_length, "Lk; 0: Lq");
  app.add_option(
         "--lengths", shape.lengths,
         "SHORTEST,LONGEST: a packed batch whose entries have keys spread "
         "evenly between them; --query-length 0: as many queries")
      ->delimiter(',')
      ->expected(2)
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  app.add_option("-d,--width", shape.width, "D")->capture_default_str();
  app.add_option("--value-width", shape.value_width, "Dv; 0: D");
  app.add_option("--hidden-width", shape.hidden_width, "h; 0: D");
  app.add_option("--dtype", shape.type, "of query, key, value and output")
      ->check(CLI::IsMember({"FP32", "FP16", "BF16"}))
      ->capture_default_str();
  app.add_option("--key-dtype", shape.key_type,
                 "of key and value; as --dtype where it is left out")
      ->check(CLI::IsMember({"FP32", "FP16", "BF16", "INT8", "FP8"}));
  app.add_option("--scoring", shape.scoring)
      ->check(CLI::IsMember({"dot", "additive", "gaussian", "bilinear"}))
      ->capture_default_str();
  app.add_flag("--causal", shape.causal, "aligned bottom-right");
  app.add_option("--window", shape.window, "keys to the left of a row's own");
  app.add_option("--page", shape.page,
                 "keys of a page, pages lying anywhere; 0: one piece");
  app.add_option("--valid-lens", shape.mean_length,
                 "mean of lengths spread evenly over the batch");
  app.add_option("--softcap", shape.softcap);
  app.add_flag("--alibi", shape.alibi, "ALiBi with the slopes of its paper");
  app.add_flag("--sinks", shape.sinks, "an attention sink for every head");
  app.add_flag("--mask", shape.mask, "an attend_mask that takes out 1 of 7");
  app.add_flag("--weights", shape.weights, "return the weights too");
  app.add_flag("--lse", shape.lse, "return the log-sum-exp too");
  app.add_option("--threads", shape.threads)->capture_default_str();
  app.add_option("--backend", shape.backend)
      ->check(CLI::IsMember(BackendNames()))
      ->capture_default_str();
  app.add_option("--instruction-set", modes.instruction_set,
                 "kernels of the backend cpu: AVX3, AVX2, SSE4, ...; the best "
                 "that the processor has where not given");
  app.add_flag(
      "--limits", modes.limits,
      "also measure the machine: the peak rate of FP32 multiply-adds and of "
      "reading memory, with as many threads");
  const char* const others = "Without Google Benchmark";
  app.add_flag("--peak-memory", modes.peak_memory,
               "print, as JSON, the memory that one run needs beyond inputs "
               "and outputs")
      ->group(others);
  app.add_option("--save", modes.save,
                 "run once and write inputs and results to this safetensors "
                 "file")
      ->group(others);
  app.add_flag("--serve-rounds", modes.serve_rounds,
               "measure when told to: reads lines 'attend SECONDS' and "
               "'limits SECONDS' from standard input and answers each with a "
               "line of JSON")
      ->group(others);
}

int Main(int argc, char** argv) {
  // Each library sees its own flags alone: Google Benchmark would answer
  // --help.
  std::vector<char*> ours, theirs;
  for (int n = 0; n < argc; ++n) {
    const bool is_theirs = std::strncmp(argv[n], "--benchmark_", 12) == 0;
    if (n == 0 || is_theirs) theirs.push_back(argv[n]);
    if (n == 0 || !is_theirs) ours.push_back(argv[n]);
  }
  int their_count = static_cast<int>(theirs.size());
  benchmark::Initialize(&their_count, theirs.data());
  if (benchmark::ReportUnrecognizedArguments(their_count, theirs.data())) {
    return 2;
  }
  CLI::App app{
      "Times one attention problem, validation included. Flags of Google "
      "Benchmark work as well: --benchmark_repetitions=N, "
      "--benchmark_min_time=SECONDS, --benchmark_format=json.\n"
      "GFLOP/s count 4 B Hq Lq Lk D, whatever masks leave of it; GB/s count "
      "inputs and results once."};
  Case shape;
  Modes modes;
  AddFlags(app, shape, modes);
  CLI11_PARSE(app, static_cast<int>(ours.size()), ours.data());
  if (!modes.instruction_set.empty()) {
    setenv("ATTENTION_CPU_TARGET", modes.instruction_set.c_str(), 1);
  }
  if (modes.WithoutGoogleBenchmark()) return RunMode(shape, modes);
  if (modes.limits) {
    const double flops = PeakFlops(shape.threads, 0.5);
    const double read = ReadRate(shape.threads, 0.5);
    benchmark::RegisterBenchmark("limit: multiply-adds", Limit, "GFLOP/s",
                                 flops)
        ->Iterations(1);
    benchmark::RegisterBenchmark("limit: reading memory", Limit, "GB/s", read)
        ->Iterations(1);
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

// NOLINTNEXTLINE(bugprone-exception-escape): ends the program, which is right
int main(int argc, char** argv) { return attention::bench::Main(argc, argv); }
