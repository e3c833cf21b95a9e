#ifndef ATTENTION_SERVER_TELEMETRY_LOG_EVENT_H_
#define ATTENTION_SERVER_TELEMETRY_LOG_EVENT_H_

#include <spdlog/common.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace spdlog::details {
struct log_msg;
}

namespace attention::server {

/// One fact of an event, with a name of its own in JSON. Text may have any
/// bytes in it.
struct LogField {
  absl::string_view name;
  std::variant<std::string, int64_t, double> value;
};

/// Whether lines have fields: the log's format is JSON. Callers put together
/// either the text or the fields.
bool LogHasFields();
/// Set at the start, by whoever sets the log up.
void SetLogHasFields(bool has_fields);

/// A line at `level`: {"time":..., "level":..., "message":..., "event":...}
/// with `fields` behind it, of which those that are empty text are left out.
/// Names must not be these four. Only where LogHasFields().
void LogEvent(spdlog::level::level_enum level, absl::string_view event,
              absl::string_view message, const std::vector<LogField>& fields);

/// For formatters: what a message of the log says, and the fields of
/// LogEvent() as JSON without braces, empty where it has none.
struct LogParts {
  absl::string_view message;
  absl::string_view fields;
};
LogParts PartsOf(const spdlog::details::log_msg& message);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_LOG_EVENT_H_
