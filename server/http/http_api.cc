#include "server/http/http_api.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/strip.h"

namespace attention::server {
namespace {

constexpr char kTextOfPrometheus[] = "text/plain; version=0.0.4; charset=utf-8";

HttpReply Error(int status, const std::string& message) {
  return {.status = status,
          .body = nlohmann::json{{"error", message}}.dump(
                      -1, ' ', /*ensure_ascii=*/false,
                      nlohmann::json::error_handler_t::replace) +
                  "\n"};
}

HttpReply Says(const std::string& name, bool value) {
  return {.status = value ? 200 : 503,
          .body = nlohmann::json{{name, value}}.dump() + "\n"};
}

}  // namespace

void HttpApi::StartServing(Sources sources) {
  const std::lock_guard lock(mutex_);
  sources_ = std::move(sources);
}

HttpReply HttpApi::Answer(const HttpRequest& request) const {
  absl::string_view what = request.path;
  const bool health = absl::ConsumePrefix(&what, "/v2/health/") &&
                      (what == "live" || what == "started" || what == "ready");
  if (!health && request.path != "/metrics") {
    return Error(404,
                 "no such path (known are /v2/health/live, /v2/health/started, "
                 "/v2/health/ready, /metrics)");
  }
  if (request.method != "GET") {
    return Error(405, "method (expected GET or HEAD)");
  }
  return health ? Health(static_cast<std::string>(what)) : Metrics();
}

HttpReply HttpApi::Health(const std::string& what) const {
  if (what == "live") return Says(what, true);
  const std::lock_guard lock(mutex_);
  if (what == "started") return Says(what, sources_.ready != nullptr);
  return Says(what, sources_.ready != nullptr && sources_.ready());
}

HttpReply HttpApi::Metrics() const {
  const std::lock_guard lock(mutex_);
  if (sources_.metrics == nullptr) {
    return Error(503, "the server is starting");
  }
  return {.content_type = kTextOfPrometheus, .body = sources_.metrics()};
}

}  // namespace attention::server
