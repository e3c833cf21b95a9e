#ifndef ATTENTION_SERVER_HTTP_METRICS_PAGE_H_
#define ATTENTION_SERVER_HTTP_METRICS_PAGE_H_

#include <string>

#include "core/engine.h"
#include "server/http/port/http_server.h"
#include "server/models/model_table.h"
#include "server/options/options.h"
#include "server/resident/resident_store.h"
#include "server/scheduling/admission.h"
#include "server/scheduling/ledger.h"
#include "server/scheduling/open_calls.h"
#include "server/scheduling/request_queue.h"
#include "server/services/call_counter.h"
#include "server/telemetry/request_metrics.h"
#include "server/transport/call_watch.h"
#include "server/transport/connections.h"

namespace attention::server {

/// What a server's metrics are read from.
struct MetricSources {
  const ServerOptions& options;  // as in effect
  const Engine& engine;
  bool ready;
  const RequestMetrics& requests;
  const CallCounter& calls;
  const ModelTable& models;
  const Admission& admission;
  const RequestQueue& queue;
  Connections& connections;
  const OpenCallLimits& open_calls;
  const Ledger& ledger;
  const CallWatch& call_watch;
  const HttpServer& http;
  const ResidentStore& resident;
};

/// Everything that /metrics tells, in Prometheus' text form; docs/operations.md
/// lists it. Takes well below a millisecond, and holds up no request for
/// longer than it takes to copy some counters.
std::string MetricsPage(const MetricSources& sources);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_METRICS_PAGE_H_
