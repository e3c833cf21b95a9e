#include "server/telemetry/request_facts.h"

#include <spdlog/spdlog.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/telemetry/model_statistics.h"

namespace attention::server {
namespace {

int64_t Microseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text), "\"");
}

void Log(const RequestFacts& facts) {
  const std::string code = absl::StatusCodeToString(facts.status.code());
  // A caller that gave up is none of the server's refusals.
  if (facts.refused && facts.status.code() != absl::StatusCode::kCancelled) {
    spdlog::warn("refused {} id={} peer={} status={} message={}",
                 facts.operation, Quoted(facts.id), facts.peer, code,
                 Quoted(facts.status.message()));
    return;
  }
  if (!WantsDetails()) return;
  spdlog::debug(
      "{} id={} peer={} shapes={} backend={} kernel={} queue_us={} "
      "compute_us={} status={}",
      facts.operation, Quoted(facts.id), facts.peer, Quoted(facts.details),
      facts.backend, facts.kernel, Microseconds(facts.queue_time),
      Microseconds(facts.compute_time), code);
}

}  // namespace

bool WantsDetails() { return spdlog::should_log(spdlog::level::debug); }

void Observe(const RequestFacts& facts) {
  Log(facts);
  if (facts.model != nullptr) facts.model->Count(facts);
}

}  // namespace attention::server
