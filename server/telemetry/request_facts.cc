#include "server/telemetry/request_facts.h"

#include <spdlog/spdlog.h>

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/out_of_memory.h"
#include "server/base/utf8.h"
#include "server/telemetry/log_event.h"
#include "server/telemetry/log_limit.h"
#include "server/telemetry/model_statistics.h"
#include "server/telemetry/request_metrics.h"
#include "server/telemetry/trace_context.h"

namespace attention::server {
namespace {

int64_t Microseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

// What a caller chose is cut: the log keeps some thousands of lines.
constexpr size_t kMostQuoted = 2048;

std::string Quoted(absl::string_view text) {
  const bool cut = text.size() > kMostQuoted;
  const std::string shown = ToUtf8(text.substr(0, kMostQuoted));
  return absl::StrCat("\"", absl::Utf8SafeCEscape(shown), cut ? "...\"" : "\"");
}

LogLimit& FailuresToTell() {
  static LogLimit limit({.rate = 10, .burst = 50});
  return limit;
}

void TellOfRefusals(int64_t left_out) {
  if (left_out == 0) return;
  const std::string text = absl::StrCat(
      left_out, left_out == 1 ? " more request was" : " more requests were",
      " refused or failed, without a line for each");
  if (LogHasFields()) {
    LogEvent(spdlog::level::warn, "refusals", text, {{"requests", left_out}});
  } else {
    spdlog::warn(text);
  }
}

// A caller who cancels gets what it wants.
bool IsWorthAWarning(const RequestFacts& facts) {
  if (absl::IsCancelled(facts.status)) return false;
  const int64_t failures = FailuresToTell().Count();
  if (failures > 0) TellOfRefusals(failures - 1);
  return failures > 0;
}

absl::string_view ModelOf(const RequestFacts& facts) {
  return facts.model != nullptr ? facts.model->name() : facts.scoring_name;
}

// What every line says first.
std::string Who(const RequestFacts& facts) {
  return absl::StrCat(
      facts.operation, " id=", Quoted(facts.id), " peer=", facts.peer,
      facts.caller.empty() ? "" : " caller=", facts.caller,
      " model=", Quoted(ModelOf(facts)),
      facts.trace_parent.empty() ? "" : " trace=", facts.trace_parent);
}

std::string Times(const RequestFacts& facts) {
  return absl::StrCat(
      "queue_us=", Microseconds(facts.queue_time),
      " compute_us=", Microseconds(facts.compute_time), " transfer_us=",
      Microseconds(facts.decode_time + facts.gather_time + facts.encode_time));
}

const char* Outcome(const RequestFacts& facts) {
  if (facts.status.ok()) return "answered";
  return facts.refused ? "refused" : "failed";
}

double Seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

// What a caller chose is cut here too.
std::string Cut(absl::string_view text) {
  return static_cast<std::string>(text.substr(0, kMostQuoted));
}

// The line as JSON has it: a field for each fact.
void LogFields(spdlog::level::level_enum level, const RequestFacts& facts) {
  std::string message = absl::StrCat(Outcome(facts), " ", facts.operation);
  if (!facts.status.ok()) {
    absl::StrAppend(&message, ": ", Cut(facts.status.message()));
  }
  std::vector<LogField> fields = {
      {"outcome", std::string(Outcome(facts))},
      {"code", absl::StatusCodeToString(facts.status.code())},
      {"operation", std::string(facts.operation)},
      {"id", Cut(facts.id)},
      {"peer", facts.peer},
      {"caller", facts.caller},
      {"model", Cut(ModelOf(facts))},
      {"shapes", Cut(facts.details)},
      {"backend", facts.backend},
      {"kernel", facts.kernel},
      {"queue_seconds", Seconds(facts.queue_time)},
      {"compute_seconds", Seconds(facts.compute_time)},
      {"transfer_seconds",
       Seconds(facts.decode_time + facts.gather_time + facts.encode_time)},
      {"request_bytes", facts.request_bytes},
      {"reply_bytes", facts.reply_bytes}};
  if (!facts.status.ok() && facts.refused) {
    const Refusal why = facts.refusal != Refusal::kNone
                            ? facts.refusal
                            : RefusalOf(facts.status);
    fields.push_back({"reason", std::string(NameOf(why))});
  }
  if (!facts.trace_parent.empty()) {
    fields.push_back({"traceparent", facts.trace_parent});
    fields.push_back({"trace_id", TraceId(facts.trace_parent)});
  }
  LogEvent(level, "request", message, fields);
}

void LogFailure(const RequestFacts& facts) {
  const bool warning = IsWorthAWarning(facts);
  if (!warning && !WantsDetails()) return;
  const auto level = warning ? spdlog::level::warn : spdlog::level::debug;
  if (LogHasFields()) {
    LogFields(level, facts);
    return;
  }
  spdlog::log(level, absl::StrCat(Outcome(facts), " ", Who(facts), " ",
                                  Times(facts), " status=",
                                  absl::StatusCodeToString(facts.status.code()),
                                  " message=", Quoted(facts.status.message())));
}

void Log(const RequestFacts& facts) {
  if (!facts.status.ok()) {
    LogFailure(facts);
    return;
  }
  if (!WantsDetails()) return;
  if (LogHasFields()) {
    LogFields(spdlog::level::debug, facts);
    return;
  }
  spdlog::debug(absl::StrCat(
      Who(facts), " shapes=", Quoted(facts.details), " backend=", facts.backend,
      " kernel=", facts.kernel, " ", Times(facts), " status=OK"));
}

}  // namespace

bool WantsDetails() { return spdlog::should_log(spdlog::level::debug); }

void Observe(const RequestFacts& facts, RequestMetrics* metrics) {
  IfMemoryAllows([&] { Log(facts); });
  if (facts.model != nullptr) facts.model->Count(facts);
  IfMemoryAllows([&] {
    if (metrics != nullptr) metrics->Count(facts);
  });
}

void TellOfRefusalsLeftOut() { TellOfRefusals(FailuresToTell().TakeUntold()); }

}  // namespace attention::server
