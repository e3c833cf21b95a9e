#include "server/telemetry/log_event.h"

#include <spdlog/spdlog.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "server/base/json.h"

namespace attention::server {
namespace {

std::atomic<bool> has_fields{false};

// The source of an event's line, by its address: a message cannot say of itself
// that it has fields. Its line is the size of the message.
constexpr char kEvent[] = "event";

}  // namespace

bool LogHasFields() { return has_fields.load(std::memory_order_relaxed); }
void SetLogHasFields(bool fields) { has_fields = fields; }

void LogEvent(spdlog::level::level_enum level, absl::string_view event,
              absl::string_view message, const std::vector<LogField>& fields) {
  if (!spdlog::should_log(level)) return;
  OrderedJson object = {{"event", static_cast<std::string>(event)}};
  for (const LogField& field : fields) {
    const auto* text = std::get_if<std::string>(&field.value);
    if (text != nullptr && text->empty()) continue;
    std::visit(
        [&](const auto& value) {
          object[static_cast<std::string>(field.name)] = value;
        },
        field.value);
  }
  const std::string payload = absl::StrCat(message, JsonLine(object));
  spdlog::default_logger_raw()->log(
      spdlog::source_loc(kEvent, static_cast<int>(message.size()), ""), level,
      spdlog::string_view_t(payload.data(), payload.size()));
}

LogParts PartsOf(const spdlog::details::log_msg& message) {
  const absl::string_view payload(message.payload.data(),
                                  message.payload.size());
  if (message.source.filename != kEvent) return {payload, ""};
  const auto size = static_cast<size_t>(message.source.line);
  const absl::string_view json = payload.substr(size);
  return {payload.substr(0, size), json.substr(1, json.size() - 2)};
}

}  // namespace attention::server
