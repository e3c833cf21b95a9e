#include "server/http/protocol/inference_api.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/out_of_memory.h"
#include "server/base/utf8.h"
#include "server/callers/callers.h"
#include "server/http/port/http_status.h"
#include "server/http/protocol/grpc_timeout.h"
#include "server/http/protocol/http_infer_call.h"
#include "server/http/protocol/json_infer_wire.h"
#include "server/request/attention_operation.h"
#include "server/request/request_builder.h"
#include "server/request/request_limits.h"
#include "server/scheduling/retry_after.h"
#include "server/services/caller_of_call.h"
#include "server/telemetry/request_facts.h"
#include "server/telemetry/request_metrics.h"
#include "server/telemetry/trace_context.h"

namespace attention::server {
namespace {

// They read JSON; what computes has threads of its own.
constexpr size_t kThreads = 2;
// Of what is no inference.
constexpr int64_t kMostSmallBodyBytes = 64 << 10;

constexpr char kAuthorization[] = "authorization";

// The trace that the caller says the request is part of; empty where it says
// none.
std::string TraceParentOf(const HttpRequest& request) {
  return ReadTraceParent(request.Header(kTraceParent));
}

absl::Status CheckEncoding(const HttpRequest& request) {
  const std::string& encoding = request.Header("content-encoding");
  if (encoding.empty() || absl::EqualsIgnoreCase(encoding, "identity")) {
    return absl::OkStatus();
  }
  return WithHttpStatus(
      FieldError("Content-Encoding",
                 absl::StrCat("'", encoding.substr(0, 64),
                              "' (expected none: bodies are not "
                              "decompressed)")),
      415);
}

absl::Status DeadlinePassed() {
  return absl::DeadlineExceededError("the caller's deadline has passed");
}

// Tells the caller at his deadline, unless the timer is gone by then.
std::shared_ptr<boost::asio::steady_timer> ReplyAt(
    std::chrono::system_clock::time_point deadline,
    const std::shared_ptr<HttpExchange>& exchange,
    boost::asio::thread_pool& threads) {
  using std::chrono::system_clock;
  if (deadline == system_clock::time_point::max()) return nullptr;
  auto timer = std::make_shared<boost::asio::steady_timer>(
      threads, deadline - system_clock::now());
  timer->async_wait([exchange](const boost::system::error_code& error) {
    if (!error) exchange->Reply(ErrorReply(WithoutBadAlloc(DeadlinePassed)));
  });
  return timer;
}

}  // namespace

InferenceApi::InferenceApi(Parts parts)
    : parts_(std::move(parts)),
      calls_(parts_.management, parts_.counter),
      threads_(std::make_shared<boost::asio::thread_pool>(kThreads)) {}

InferenceApi::~InferenceApi() {
  threads_->stop();  // nobody is there for what has not begun
  threads_->join();
}

absl::StatusOr<InferenceApi::CallerPtr> InferenceApi::CallerOf(
    const HttpRequest& request) const {
  if (parts_.services.callers == nullptr) return CallerPtr();
  Credentials credentials;
  const auto header = request.headers.find(kAuthorization);
  if (header != request.headers.end()) {
    credentials.authorization = header->second;
  } else {
    credentials.certificate_names = request.certificate_names;
  }
  return parts_.services.callers->Find(credentials, request.peer);
}

absl::Status InferenceApi::Check(HttpRequest& request) const {
  if (request.caller) return absl::OkStatus();  // before its body came
  if (!request.encrypted && !parts_.no_plain_text.empty()) {
    return absl::PermissionDeniedError(parts_.no_plain_text);
  }
  absl::StatusOr<CallerPtr> caller = CallerOf(request);
  if (!caller.ok()) return caller.status();
  if (absl::Status status = CheckEncoding(request); !status.ok()) return status;
  request.caller = *std::move(caller);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> InferenceApi::MostBodyBytes(
    HttpRequest& request) const {
  request.route = FindInferenceRoute(request.path);
  if (absl::Status status = Check(request); !status.ok()) {
    if (request.route) {
      const InferenceMethod method = request.route->method;
      CountTurnedAway(method, calls_.Begin(method), status);
    }
    return status;
  }
  if (!request.route || request.route->method != InferenceMethod::kModelInfer) {
    return kMostSmallBodyBytes;
  }
  return std::min(parts_.options.max_request_bytes,
                  parts_.bodies->limit_of_one());
}

void InferenceApi::CountTurnedAway(InferenceMethod method,
                                   const CountedCall& counted,
                                   const absl::Status& status) const {
  if (counted != nullptr) {
    return counted->End(static_cast<grpc::StatusCode>(status.code()));
  }
  if (method != InferenceMethod::kModelInfer) return;  // no memory to count it
  parts_.services.CountTurnedAway(Rpc::kModelInfer, status);
}

void InferenceApi::OnRefusal(const HttpRequest& request,
                             const absl::Status& status,
                             Refusal refusal) const {
  const auto route =
      request.route ? request.route : FindInferenceRoute(request.path);
  if (!route) return;
  if (const CountedCall counted = calls_.Begin(route->method)) {
    return CountTurnedAway(route->method, counted, status);
  }
  RequestFacts facts;
  facts.operation = "attend";
  facts.rpc = Rpc::kModelInfer;
  facts.peer = request.peer;
  facts.trace_parent = TraceParentOf(request);
  if (request.caller && *request.caller != nullptr) {
    facts.caller = (*request.caller)->name;
  }
  facts.request_bytes = static_cast<int64_t>(request.body.size());
  facts.status = status;
  facts.refused = true;
  facts.refusal = refusal;
  RequestMetrics* const metrics = parts_.services.metrics;
  if (metrics != nullptr) metrics->NoteArrival(facts.rpc);
  Observe(facts, metrics);
}

void InferenceApi::Answer(const std::shared_ptr<HttpExchange>& exchange) {
  HttpRequest& request = exchange->request();
  // Known already where there is a body.
  if (!request.route) request.route = FindInferenceRoute(request.path);
  const auto& route = request.route;
  if (!route) {
    return exchange->Reply(
        HttpError(404, "no such path of the Open Inference Protocol"));
  }
  if (!Takes(*route, request.method)) {
    HttpReply reply =
        HttpError(405, absl::StrCat("method: ", request.method, " (expected ",
                                    route->http_methods, ")"));
    reply.headers.emplace_back("Allow", route->http_methods);
    return exchange->Reply(std::move(reply));
  }
  boost::asio::post(*threads_, [this, exchange] {
    const InferenceRoute& asked = *exchange->request().route;
    CountedCall counted;
    const absl::Status status = WithoutBadAlloc(
        [&] {
          counted = calls_.Begin(asked.method);
          return AnswerRoute(exchange, asked, counted);
        },
        OutOfMemoryForNow);
    if (status.ok()) return;
    CountTurnedAway(asked.method, counted, status);
    exchange->Reply(ErrorReply(status));
  });
}

absl::Status InferenceApi::AnswerRoute(
    const std::shared_ptr<HttpExchange>& exchange, const InferenceRoute& route,
    const CountedCall& counted) {
  HttpRequest& request = exchange->request();
  if (absl::Status status = Check(request); !status.ok()) return status;
  const CallerPtr& caller = *request.caller;
  if (!IsUtf8(route.name) || !IsUtf8(route.version)) {
    return FieldError("path", "a name in it is not UTF-8");
  }
  if (route.method == InferenceMethod::kModelInfer) {
    return Infer(exchange, route, caller);
  }
  return Manage(exchange, route, caller, counted);
}

absl::Status InferenceApi::Manage(const std::shared_ptr<HttpExchange>& exchange,
                                  const InferenceRoute& route,
                                  const CallerPtr& caller,
                                  const CountedCall& counted) {
  const HttpRequest& request = exchange->request();
  const auto deadline = DeadlineOf(request.Header(kGrpcTimeout), request.begin);
  if (!deadline.ok()) return deadline.status();
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  exchange->OnGone([gone] { *gone = true; });
  const auto wanted = [gone, deadline = *deadline] {
    return *gone ? absl::CancelledError("the caller went away")
           : std::chrono::system_clock::now() >= deadline ? DeadlinePassed()
                                                          : absl::OkStatus();
  };
  if (absl::Status late = wanted(); !late.ok()) return late;
  const auto timer = ReplyAt(*deadline, exchange, *threads_);
  return calls_.Ask({route,
                     counted,
                     caller.get(),
                     request.body.view(),
                     {PartyOf(caller.get(), request.peer), wanted}},
                    [exchange, timer](HttpReply reply) {
                      exchange->Reply(std::move(reply));
                    });
}

absl::Status InferenceApi::Infer(const std::shared_ptr<HttpExchange>& exchange,
                                 const InferenceRoute& route,
                                 CallerPtr caller) {
  HttpRequest& request = exchange->request();
  const auto deadline = DeadlineOf(request.Header(kGrpcTimeout), request.begin);
  if (!deadline.ok()) return deadline.status();
  JsonInferHead head;
  head.model = route.name;
  head.version = route.version;
  const auto json_bytes =
      request.headers.find(absl::AsciiStrToLower(kJsonLengthHeader));
  if (json_bytes != request.headers.end()) head.json_bytes = json_bytes->second;
  const auto reply = std::make_shared<JsonInferReply>();
  auto operation = std::make_unique<AttentionOperation>(
      std::make_unique<JsonInferWire>(
          parts_.models,
          SharedMemoryOf(caller.get(), parts_.regions, parts_.options),
          std::move(head), reply),
      parts_.engine, LimitsOfRequest(parts_.options, caller.get()),
      parts_.resident.AccessOf(caller.get()));
  HttpInferCall::Begin(parts_.services, parts_.calls,
                       {.peer = request.peer,
                        .caller = std::move(caller),
                        .deadline = *deadline,
                        .trace_parent = TraceParentOf(request)},
                       std::move(operation), exchange, reply, threads_);
  return absl::OkStatus();
}

}  // namespace attention::server
