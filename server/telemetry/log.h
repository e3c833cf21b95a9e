#ifndef ATTENTION_SERVER_TELEMETRY_LOG_H_
#define ATTENTION_SERVER_TELEMETRY_LOG_H_

#include <spdlog/formatter.h>

#include <memory>
#include <string>

namespace attention::server {

/// The process's log, on stderr. `level` and `format` are ServerOptions' and
/// have been checked. What gRPC and protobuf would write to stderr by
/// themselves becomes lines of this log, most of them at debug.
void SetUpLog(const std::string& level, const std::string& format);

/// "2024-05-01T10:00:00.000Z info message", one line whatever the message has
/// in it: control characters are escaped.
std::unique_ptr<spdlog::formatter> MakeTextFormatter();

/// {"level":"info","message":"...","time":"..."}, one valid JSON object per
/// line whatever bytes the message has in it.
std::unique_ptr<spdlog::formatter> MakeJsonFormatter();

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_LOG_H_
