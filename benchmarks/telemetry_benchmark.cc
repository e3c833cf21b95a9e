// attention-telemetry: what it costs to observe one request.
#include <benchmark/benchmark.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <memory>

#include "server/telemetry/model_statistics.h"
#include "server/telemetry/request_facts.h"
#include "server/telemetry/request_metrics.h"

namespace attention::server {
namespace {

RequestFacts Answered() {
  RequestFacts facts;
  facts.operation = "attend";
  facts.rpc = Rpc::kAttend;
  facts.scoring = 0;
  facts.backend = "cpu";
  facts.kernel = "fp32_small";
  facts.request_bytes = 4096;
  facts.reply_bytes = 1024;
  facts.batch_entries = 1;
  facts.tensors[11] = 3;
  facts.decode_time = std::chrono::microseconds(3);
  facts.queue_time = std::chrono::microseconds(3);
  facts.compute_time = std::chrono::microseconds(5);
  facts.encode_time = std::chrono::microseconds(1);
  return facts;
}

// Arrival and end, with the log as it is by default.
void ObserveRequest(benchmark::State& state) {
  static RequestMetrics metrics;
  const RequestFacts facts = Answered();
  while (state.KeepRunning()) {
    metrics.NoteArrival(facts.rpc);
    Observe(facts, &metrics);
  }
}
BENCHMARK(ObserveRequest)->Threads(1)->Threads(2)->UseRealTime();

// The same without metrics: what was there before.
void ObserveRequestWithoutMetrics(benchmark::State& state) {
  const RequestFacts facts = Answered();
  while (state.KeepRunning()) Observe(facts, nullptr);
}
BENCHMARK(ObserveRequestWithoutMetrics)->Threads(1)->Threads(2)->UseRealTime();

// With a model's statistics, which the Open Inference Protocol has.
void ObserveRequestOfModel(benchmark::State& state) {
  static RequestMetrics metrics;
  static const auto model = std::make_shared<ModelCounters>();
  RequestFacts facts = Answered();
  facts.rpc = Rpc::kModelInfer;
  facts.model = model;
  while (state.KeepRunning()) {
    metrics.NoteArrival(facts.rpc);
    Observe(facts, &metrics);
  }
}
BENCHMARK(ObserveRequestOfModel)->Threads(1)->Threads(2)->UseRealTime();

}  // namespace
}  // namespace attention::server

BENCHMARK_MAIN();
