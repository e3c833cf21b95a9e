#include "server/telemetry/request_facts.h"

#include <spdlog/spdlog.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/telemetry/model_statistics.h"
#include "server/telemetry/rate_limit.h"

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

std::string Who(const RequestFacts& facts) {
  return absl::StrCat("peer=", facts.peer,
                      facts.caller.empty() ? "" : " caller=", facts.caller);
}

RateLimit& RefusalsToTell() {
  static RateLimit limit(/*burst=*/50, /*per_second=*/10);
  return limit;
}

void TellOfRefusals(int64_t left_out) {
  if (left_out == 0) return;
  spdlog::warn("{} more {} refused, without a line for each", left_out,
               left_out == 1 ? "request was" : "requests were");
}

// A caller who cancels gets what it wants.
bool IsWorthAWarning(const RequestFacts& facts) {
  if (absl::IsCancelled(facts.status)) return false;
  const RateLimit::Decision decision =
      RefusalsToTell().Ask(std::chrono::steady_clock::now());
  if (decision.pass) TellOfRefusals(decision.left_out);
  return decision.pass;
}

void LogRefusal(const RequestFacts& facts) {
  const bool warning = IsWorthAWarning(facts);
  if (!warning && !WantsDetails()) return;
  spdlog::log(warning ? spdlog::level::warn : spdlog::level::debug,
              "refused {} id={} {} status={} message={}", facts.operation,
              Quoted(facts.id), Who(facts),
              absl::StatusCodeToString(facts.status.code()),
              Quoted(facts.status.message()));
}

void Log(const RequestFacts& facts) {
  if (facts.refused) {
    LogRefusal(facts);
    return;
  }
  if (!WantsDetails()) return;
  spdlog::debug(
      "{} id={} {} shapes={} backend={} kernel={} queue_us={} "
      "compute_us={} status={}",
      facts.operation, Quoted(facts.id), Who(facts), Quoted(facts.details),
      facts.backend, facts.kernel, Microseconds(facts.queue_time),
      Microseconds(facts.compute_time),
      absl::StatusCodeToString(facts.status.code()));
}

}  // namespace

bool WantsDetails() { return spdlog::should_log(spdlog::level::debug); }

void Observe(const RequestFacts& facts) {
  Log(facts);
  if (facts.model != nullptr) facts.model->Count(facts);
}

void TellOfRefusalsLeftOut() { TellOfRefusals(RefusalsToTell().TakeLeftOut()); }

}  // namespace attention::server
