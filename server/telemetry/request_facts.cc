#include "server/telemetry/request_facts.h"

#include <spdlog/spdlog.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/telemetry/model_statistics.h"
#include "server/telemetry/rate_limit.h"
#include "server/telemetry/request_metrics.h"

namespace attention::server {
namespace {

int64_t Microseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

// What a caller chose is cut: the log keeps some thousands of lines.
constexpr size_t kMostQuoted = 2048;

std::string Quoted(absl::string_view text) {
  const bool cut = text.size() > kMostQuoted;
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text.substr(0, kMostQuoted)),
                      cut ? "...\"" : "\"");
}

RateLimit& FailuresToTell() {
  static RateLimit limit(/*burst=*/50, /*per_second=*/10);
  return limit;
}

void TellOfRefusals(int64_t left_out) {
  if (left_out == 0) return;
  spdlog::warn("{} more {} refused or failed, without a line for each",
               left_out, left_out == 1 ? "request was" : "requests were");
}

// A caller who cancels gets what it wants.
bool IsWorthAWarning(const RequestFacts& facts) {
  if (absl::IsCancelled(facts.status)) return false;
  const RateLimit::Decision decision =
      FailuresToTell().Ask(std::chrono::steady_clock::now());
  if (decision.pass) TellOfRefusals(decision.left_out);
  return decision.pass;
}

// What every line says first.
std::string Who(const RequestFacts& facts) {
  const absl::string_view model =
      facts.model != nullptr ? facts.model->name() : facts.scoring_name;
  return absl::StrCat(
      facts.operation, " id=", Quoted(facts.id), " peer=", facts.peer,
      facts.caller.empty() ? "" : " caller=", facts.caller,
      " model=", Quoted(model),
      facts.trace_parent.empty() ? "" : " trace=", facts.trace_parent);
}

std::string Times(const RequestFacts& facts) {
  return absl::StrCat(
      "queue_us=", Microseconds(facts.queue_time),
      " compute_us=", Microseconds(facts.compute_time), " transfer_us=",
      Microseconds(facts.decode_time + facts.gather_time + facts.encode_time));
}

void LogFailure(const RequestFacts& facts) {
  const bool warning = IsWorthAWarning(facts);
  if (!warning && !WantsDetails()) return;
  spdlog::log(warning ? spdlog::level::warn : spdlog::level::debug,
              "{} {} {} status={} message={}",
              facts.refused ? "refused" : "failed", Who(facts), Times(facts),
              absl::StatusCodeToString(facts.status.code()),
              Quoted(facts.status.message()));
}

void Log(const RequestFacts& facts) {
  if (!facts.status.ok()) {
    LogFailure(facts);
    return;
  }
  if (!WantsDetails()) return;
  spdlog::debug("{} shapes={} backend={} kernel={} {} status=OK", Who(facts),
                Quoted(facts.details), facts.backend, facts.kernel,
                Times(facts));
}

}  // namespace

bool WantsDetails() { return spdlog::should_log(spdlog::level::debug); }

void Observe(const RequestFacts& facts, RequestMetrics* metrics) {
  Log(facts);
  if (facts.model != nullptr) facts.model->Count(facts);
  if (metrics != nullptr) metrics->Count(facts);
}

void TellOfRefusalsLeftOut() { TellOfRefusals(FailuresToTell().TakeLeftOut()); }

}  // namespace attention::server
