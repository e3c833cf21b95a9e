#ifndef ATTENTION_SERVER_TELEMETRY_LOG_H_
#define ATTENTION_SERVER_TELEMETRY_LOG_H_

#include <spdlog/formatter.h>

#include <cstdint>
#include <memory>
#include <string>

namespace attention::server {

/// The process's log, on stderr. `level` and `format` are ServerOptions' and
/// have been checked. What gRPC and protobuf would write to stderr by
/// themselves becomes lines of this log, most of them at debug.
///
/// Lines are written by a thread of its own, so that a reader who is slow, or
/// gone, holds up nobody: a line then waits in a queue of 4096, whose oldest
/// are dropped. Throws std::system_error where there is no such thread to be
/// had.
void SetUpLog(const std::string& level, const std::string& format);

/// After SetUpLog(): has all lines written that were logged before, and takes a
/// second at most. False where nobody reads them; the process must then end by
/// _exit(), which waits for no thread.
bool FlushLog();

/// Lines that were dropped since SetUpLog(), because nobody read them in time.
int64_t DroppedLines();

/// True once a library has said why it ends the process.
bool ToldOfFatal();

/// "2024-05-01T10:00:00.000Z info message", one line whatever the message has
/// in it: control characters are escaped.
std::unique_ptr<spdlog::formatter> MakeTextFormatter();

/// {"time":"...","level":"info","message":"..."}, one valid JSON object per
/// line whatever bytes the message has in it; with the fields of LogEvent().
std::unique_ptr<spdlog::formatter> MakeJsonFormatter();

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_LOG_H_
