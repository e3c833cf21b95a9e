#include "server/http/http_api.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/json.h"
#include "server/http/port/http_status.h"
#include "server/http/protocol/inference_api.h"
#include "server/scheduling/retry_after.h"

namespace attention::server {
namespace {

constexpr char kTextOfPrometheus[] = "text/plain; version=0.0.4; charset=utf-8";

constexpr char kMetrics[] = "/metrics";

// Beside inference.
constexpr int64_t kMostBodyBytes = 16 << 10;

bool IsHealth(const std::string& path) {
  return path == "/v2/health/live" || path == "/v2/health/started" ||
         path == "/v2/health/ready";
}

bool IsInference(const std::string& path) {
  return path == "/v2" || (path.starts_with("/v2/") && !IsHealth(path));
}

absl::Status Starting() {
  return RetryAfter(absl::UnavailableError("the server is starting"),
                    std::chrono::seconds(1));
}

HttpReply Says(const std::string& name, bool value) {
  return {.status = value ? 200 : 503,
          .body = JsonLine(Json{{name, value}}) + "\n"};
}

}  // namespace

void HttpApi::StartServing(Sources sources) {
  auto metrics =
      std::make_shared<SharedPage>(kTextOfPrometheus, sources.metrics);
  const std::lock_guard lock(mutex_);
  sources_ = std::move(sources);
  metrics_ = std::move(metrics);
}

void HttpApi::StopServing() {
  std::shared_ptr<SharedPage> metrics;  // ends without the lock
  const std::lock_guard lock(mutex_);
  metrics = std::exchange(metrics_, nullptr);
}

bool HttpApi::IsProbe(const HttpRequest& request) {
  return IsHealth(request.path) || request.path == kMetrics;
}

InferenceApi* HttpApi::InferenceOf(const HttpRequest& request) const {
  if (!IsInference(request.path)) return nullptr;
  const std::lock_guard lock(mutex_);
  return sources_.inference;
}

absl::StatusOr<int64_t> HttpApi::MostBodyBytes(HttpRequest& request) const {
  const InferenceApi* const inference = InferenceOf(request);
  if (inference != nullptr) return inference->MostBodyBytes(request);
  if (!IsProbe(request)) return WhyNotServed(request);
  return kMostBodyBytes;
}

void HttpApi::OnRefusal(const HttpRequest& request, const absl::Status& status,
                        Refusal refusal) const {
  const InferenceApi* const inference = InferenceOf(request);
  if (inference != nullptr) inference->OnRefusal(request, status, refusal);
}

void HttpApi::Answer(const std::shared_ptr<HttpExchange>& exchange) const {
  const HttpRequest& request = exchange->request();
  InferenceApi* const inference = InferenceOf(request);
  if (inference != nullptr) return inference->Answer(exchange);
  if (request.path == kMetrics && request.method == "GET") {
    const std::lock_guard lock(mutex_);
    if (metrics_ != nullptr) return metrics_->Answer(exchange);
  }
  exchange->Reply(Answer(request));
}

HttpReply HttpApi::Answer(const HttpRequest& request) const {
  if (!IsProbe(request)) return ErrorReply(WhyNotServed(request));
  if (request.method != "GET") {
    HttpReply reply = HttpError(405, absl::StrCat("method: ", request.method,
                                                  " (expected GET or HEAD)"));
    reply.headers.emplace_back("Allow", "GET, HEAD");
    return reply;
  }
  if (request.path == kMetrics) return ErrorReply(Starting());
  return Health(request.path.substr(request.path.rfind('/') + 1));
}

absl::Status HttpApi::WhyNotServed(const HttpRequest& request) const {
  if (with_inference_ && IsInference(request.path)) return Starting();
  return absl::NotFoundError(
      "no such path (known are /metrics, /v2/health/live, "
      "/v2/health/started, /v2/health/ready and, where inference is served "
      "over HTTP, the Open Inference Protocol's below /v2)");
}

HttpReply HttpApi::Health(const std::string& what) const {
  if (what == "live") return Says(what, true);
  const std::lock_guard lock(mutex_);
  if (what == "started") return Says(what, sources_.ready != nullptr);
  return Says(what, sources_.ready != nullptr && sources_.ready());
}

}  // namespace attention::server
