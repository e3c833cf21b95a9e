#include "server/http/metrics_page.h"

#include <grpcpp/grpcpp.h>

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "core/datatype.h"
#include "server/base/version.h"
#include "server/models/model.h"
#include "server/request/scoring_names.h"
#include "server/resident/resident_metrics.h"
#include "server/telemetry/log.h"
#include "server/telemetry/metric_families.h"
#include "server/telemetry/process_figures.h"
#include "server/telemetry/refusal.h"
#include "server/telemetry/rpc.h"

namespace attention::server {
namespace {

using Labels = MetricFamilies::Labels;

// As gRPC's other servers write them.
constexpr std::array<const char*, kStatusCodes> kCodes = {"OK",
                                                          "Canceled",
                                                          "Unknown",
                                                          "InvalidArgument",
                                                          "DeadlineExceeded",
                                                          "NotFound",
                                                          "AlreadyExists",
                                                          "PermissionDenied",
                                                          "ResourceExhausted",
                                                          "FailedPrecondition",
                                                          "Aborted",
                                                          "OutOfRange",
                                                          "Unimplemented",
                                                          "Internal",
                                                          "Unavailable",
                                                          "DataLoss",
                                                          "Unauthenticated"};

static_assert(kMostDataTypes == static_cast<size_t>(DataType::kFloat64) + 1);
static_assert(kMostScorings == std::variant_size_v<Scoring>);

double Value(uint64_t count) { return static_cast<double>(count); }
double Value(int64_t count) { return static_cast<double>(count); }

Labels With(Labels labels, const std::string& name, const std::string& value) {
  labels.push_back({name, value});
  return labels;
}

// The calls of one method. Of those without tensors, only codes that came are
// shown: there are many methods.
struct Method {
  Labels labels;
  bool stream;
  bool every_code;
  RequestMetrics::OfRpc counts;
};

std::vector<Method> AllMethods(const RequestMetrics::Counts& counts,
                               const CallCounter& others) {
  std::vector<Method> all;
  const auto labels = [](const std::string& type, const std::string& service,
                         const std::string& method) {
    return Labels{{"grpc_type", type},
                  {"grpc_service", service},
                  {"grpc_method", method}};
  };
  for (size_t i = 1; i < kRpcs; ++i) {  // 0 has no name
    const auto rpc = static_cast<Rpc>(i);
    const RpcName name = NameOf(rpc);
    all.push_back({labels(name.type, name.service, name.method), IsStream(rpc),
                   true, counts.rpcs[i]});
  }
  for (const CallCounter::OfMethod& of : others.Read()) {
    all.push_back({labels(of.type, of.service, of.method), of.type != "unary",
                   false, of.counts});
  }
  return all;
}

void AddCalls(const std::vector<Method>& methods, MetricFamilies& page) {
  auto started = page.Counter("grpc_server_started_total", "Calls that began.");
  for (const Method& of : methods) {
    started.Add(Value(of.counts.started), of.labels);
  }
  auto handled = page.Counter("grpc_server_handled_total",
                              "Calls that ended, by status code.");
  for (const Method& of : methods) {
    for (size_t code = 0; code < kStatusCodes; ++code) {
      const uint64_t count = of.counts.by_code[code];
      if (count == 0 && code != 0 && !of.every_code) continue;
      handled.Add(Value(count), With(of.labels, "grpc_code", kCodes[code]));
    }
  }
  auto time = page.Histogram("grpc_server_handling_seconds",
                             "Unary calls, from the message's arrival to the "
                             "encoded reply.");
  for (const Method& of : methods) {
    if (!of.stream) time.Add(of.counts.time, of.labels);
  }
  auto received = page.Counter("grpc_server_msg_received_total",
                               "Requests that came on streams.");
  for (const Method& of : methods) {
    if (of.stream) received.Add(Value(of.counts.received), of.labels);
  }
  auto sent = page.Counter("grpc_server_msg_sent_total",
                           "Replies to them, errors included.");
  for (const Method& of : methods) {
    if (of.stream) sent.Add(Value(of.counts.sent), of.labels);
  }
}

// One model's requests over one API.
struct Series {
  Labels labels;
  RequestSeries counts;
};

// Those that have been called.
std::vector<Series> AllSeries(const RequestMetrics::Counts& counts,
                              const ModelTable& models) {
  std::vector<Series> all;
  const auto add = [&all](const char* api, absl::string_view model,
                          const RequestSeries& series) {
    if (series.requests() == 0) return;
    all.push_back(
        {{{"api", api}, {"model", static_cast<std::string>(model)}}, series});
  };
  const auto scorings = ScoringNames();
  for (size_t i = 0; i < counts.by_scoring.size(); ++i) {
    add("attention.v1", i < scorings.size() ? scorings[i].model : kUnknownModel,
        counts.by_scoring[i]);
  }
  add("attention.v1", "append", counts.appends);
  add("inference", kUnknownModel, counts.no_model);
  for (const auto& [name, counters] : models.Counters()) {
    add("inference", name, counters->ReadSeries());
  }
  return all;
}

void AddRequests(const std::vector<Series>& all, MetricFamilies& page) {
  auto requests =
      page.Counter("attention_requests_total",
                   "Requests that were answered, of calls and of streams.");
  for (const Series& series : all) {
    for (size_t code = 0; code < kStatusCodes; ++code) {
      const uint64_t count = series.counts.by_code[code];
      if (count == 0 && code != 0) continue;
      requests.Add(Value(count), With(series.labels, "code", kCodes[code]));
    }
  }
  const auto histogram = [&](const char* name, const char* help,
                             const auto& member) {
    auto family = page.Histogram(name, help);
    for (const Series& series : all) {
      family.Add(std::invoke(member, series.counts), series.labels);
    }
  };
  histogram("attention_request_queue_seconds",
            "Waiting for a worker, of requests that were admitted.",
            &RequestSeries::queue);
  histogram("attention_request_compute_seconds", "Computing.",
            &RequestSeries::compute);
  histogram("attention_request_transfer_seconds",
            "Decoding and gathering the request, encoding the reply.",
            &RequestSeries::transfer);
  histogram("attention_request_batch_entries",
            "Batch entries that a request brings.", &RequestSeries::batch);
  const auto bytes = [&](const char* name, const char* help,
                         const auto& member) {
    auto family = page.Counter(name, help);
    for (const Series& series : all) {
      family.Add(Value(std::invoke(member, series.counts)), series.labels);
    }
  };
  bytes("attention_request_bytes_total", "Bytes of requests.",
        &RequestSeries::request_bytes);
  bytes("attention_reply_bytes_total", "Bytes of replies.",
        &RequestSeries::reply_bytes);
}

void AddWhat(const RequestMetrics::Counts& counts, MetricFamilies& page) {
  auto refused = page.Counter("attention_requests_refused_total",
                              "Requests that were not computed, by reason.");
  for (size_t i = 1; i < kRefusalReasons; ++i) {
    refused.Add(Value(counts.refused[i]),
                {{"reason", NameOf(static_cast<Refusal>(i))}});
  }
  auto tensors = page.Counter("attention_tensors_total",
                              "Tensors of requests, by datatype.");
  for (size_t i = 0; i < kMostDataTypes; ++i) {
    if (counts.tensors[i] == 0) continue;
    const auto name = Name(static_cast<DataType>(i));
    tensors.Add(Value(counts.tensors[i]),
                {{"datatype", static_cast<std::string>(name)}});
  }
  auto kernels = page.Counter("attention_kernel_requests_total",
                              "Requests by what computed them.");
  for (const RequestMetrics::OfKernel& of : counts.kernels) {
    kernels.Add(Value(of.requests),
                {{"backend", of.backend}, {"kernel", of.kernel}});
  }
}

void AddLoad(const MetricSources& from, MetricFamilies& page) {
  page.Gauge("attention_ready", "1 while /v2/health/ready says yes.")
      .Add(from.ready ? 1 : 0);
  page.Gauge("attention_worker_threads", "Threads that compute.")
      .Add(from.engine.workers().threads());
  page.Gauge("attention_requests_in_flight",
             "Requests that were admitted and not yet answered.")
      .Add(Value(from.admission.requests()));
  page.Gauge("attention_requests_in_flight_limit", "--max-requests-in-flight.")
      .Add(Value(from.options.max_requests_in_flight));
  page.Gauge("attention_memory_in_flight_bytes",
             "What they hold: messages, working memory, replies.")
      .Add(Value(from.admission.bytes()));
  page.Gauge("attention_memory_in_flight_limit_bytes",
             "Half of --memory-limit.")
      .Add(Value(from.options.memory_limit / 2));
  page.Gauge("attention_queue_requests", "Requests that wait for a worker.")
      .Add(Value(from.queue.waiting()));
  page.Gauge("attention_queue_work_seconds",
             "How long the workers have still to compute for what waits and "
             "runs, as estimated.")
      .Add(std::chrono::duration<double>(from.queue.Backlog()).count() /
           from.engine.workers().threads());
}

void AddConnections(const MetricSources& from, MetricFamilies& page) {
  auto open = page.Gauge("attention_connections", "Open connections.");
  open.Add(Value(from.connections.Collect()), {{"protocol", "grpc"}});
  open.Add(Value(from.http.connections()), {{"protocol", "http"}});
  page.Gauge("attention_connections_limit", "--max-connections.")
      .Add(Value(from.connections.limits().total), {{"protocol", "grpc"}});
  page.Counter("attention_connections_accepted_total",
               "Connections that were accepted and served.")
      .Add(Value(from.connections.accepted()), {{"protocol", "grpc"}});
  auto refused = page.Counter("attention_connections_refused_total",
                              "Connections that were closed at once.");
  refused.Add(Value(from.connections.refused()), {{"protocol", "grpc"}});
  refused.Add(Value(from.http.connections_refused()), {{"protocol", "http"}});
  page.Gauge("attention_open_calls",
             "Calls that are open over gRPC, whatever they do.")
      .Add(Value(from.ledger.Of(Kept::kCalls).amount));
  page.Gauge("attention_open_calls_limit",
             "As many as there may be, by --memory-limit.")
      .Add(Value(from.open_calls.total));
  page.Counter("attention_connections_closed_total",
               "Connections that were closed for their open calls.")
      .Add(Value(from.call_watch.closed()), {{"protocol", "grpc"}});
}

void AddDevices(const Engine& engine, MetricFamilies& page) {
  std::vector<DeviceFigures> all;
  for (const auto& backend : engine.backends()) {
    for (const DeviceFigures& of : backend->ReadDevices()) all.push_back(of);
  }
  const auto add = [&all](MetricFamilies::Family family, const auto& member) {
    for (const DeviceFigures& of : all) {
      const std::optional<double> value = member(of);
      if (!value) continue;
      family.Add(*value,
                 {{"device", std::to_string(of.index)}, {"name", of.name}});
    }
  };
  const auto known = [](std::optional<int64_t> bytes) {
    return bytes ? std::optional(Value(*bytes)) : std::nullopt;
  };
  using Of = const DeviceFigures&;
  add(page.Gauge("attention_device_healthy", "0 once the device is lost."),
      [](Of of) -> std::optional<double> { return of.healthy ? 1 : 0; });
  add(page.Counter("attention_device_problems_total",
                   "Problems that the device computed."),
      [](Of of) -> std::optional<double> { return Value(of.problems); });
  add(page.Gauge("attention_device_memory_bytes", "Memory of the device."),
      [](Of of) -> std::optional<double> { return Value(of.memory); });
  add(page.Gauge("attention_device_memory_free_bytes",
                 "What no process has taken of it."),
      [&known](Of of) { return known(of.free); });
  add(page.Gauge("attention_device_memory_held_bytes",
                 "What this server has taken of it for tensors."),
      [](Of of) -> std::optional<double> { return Value(of.held); });
  add(page.Gauge("attention_device_memory_limit_bytes",
                 "What it takes at most: --cuda-memory-limit."),
      [&known](Of of) { return known(of.limit); });
  add(page.Gauge("attention_device_pages",
                 "Pages of sequences that are kept on it."),
      [](Of of) -> std::optional<double> { return Value(of.pages); });
  add(page.Gauge("attention_device_page_bytes",
                 "What these take, a part of what is held."),
      [](Of of) -> std::optional<double> { return Value(of.page_bytes); });
  add(page.Counter("attention_device_page_bytes_brought_total",
                   "Keys and values of sequences that were copied to it."),
      [](Of of) -> std::optional<double> {
        return Value(of.page_bytes_brought);
      });
}

void AddProcess(MetricFamilies& page) {
  page.Gauge("attention_build_info", "1, with the versions of what runs.")
      .Add(1, {{"version", Version()},
               {"grpc", grpc::Version()},
               {"compiler", __VERSION__}});
  page.Counter("attention_log_dropped_lines_total",
               "Lines of the log that nobody read in time.")
      .Add(Value(DroppedLines()));
  const ProcessFigures of = ReadProcessFigures();
  page.Counter("process_cpu_seconds_total", "CPU time, user and system.")
      .Add(of.cpu_seconds);
  page.Gauge("process_start_time_seconds", "Start, since 1970.")
      .Add(of.start_time);
  page.Gauge("process_virtual_memory_bytes", "Address space.")
      .Add(of.virtual_bytes);
  page.Gauge("process_resident_memory_bytes", "Memory in RAM.")
      .Add(of.resident_bytes);
  page.Gauge("process_threads", "Threads.").Add(of.threads);
  page.Gauge("process_open_fds", "Open file descriptors.")
      .Add(of.open_descriptors);
  page.Gauge("process_max_fds", "As many as there may be.")
      .Add(of.most_descriptors);
}

}  // namespace

std::string MetricsPage(const MetricSources& sources) {
  const RequestMetrics::Counts counts = sources.requests.Read();
  MetricFamilies page;
  AddCalls(AllMethods(counts, sources.calls), page);
  AddRequests(AllSeries(counts, sources.models), page);
  AddWhat(counts, page);
  AddLoad(sources, page);
  AddConnections(sources, page);
  AddResident(sources.resident, page);
  AddDevices(sources.engine, page);
  AddProcess(page);
  return page.Text();
}

}  // namespace attention::server
