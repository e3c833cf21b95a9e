#include "server/telemetry/log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <spdlog/async_logger.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "server/base/json.h"
#include "server/telemetry/log_event.h"
#include "server/telemetry/log_sink.h"

namespace attention::server {
namespace {

// UTC, milliseconds: "2024-05-01T10:00:00.000Z".
std::string Timestamp(spdlog::log_clock::time_point time) {
  const std::time_t seconds = spdlog::log_clock::to_time_t(time);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  const auto since_epoch =
      std::chrono::duration_cast<std::chrono::milliseconds>(
          time.time_since_epoch());
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02d.%03dZ",
                         utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                         utc.tm_hour, utc.tm_min, utc.tm_sec,
                         since_epoch.count() % 1000);
}

absl::string_view LevelName(spdlog::level::level_enum level) {
  const auto name = spdlog::level::to_string_view(level);
  return {name.data(), name.size()};
}

void Append(absl::string_view text, spdlog::memory_buf_t& line) {
  line.append(text.data(), text.data() + text.size());
}

// How many bytes the control character has that `text` begins with; 0: it
// begins with another one. Of C0 and C1, the ends of lines and what turns the
// direction of text: readers obey all of them.
size_t BytesOfControl(absl::string_view text) {
  const auto byte = [text](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const int first = byte(0);
  const int second = byte(1);
  const int third = byte(2);
  if (first < 0x20 || first == 0x7F) return 1;
  if (first == 0xC2 && second >= 0x80 && second <= 0x9F) return 2;
  if (first == 0xD8 && second == 0x9C) return 2;  // U+061C
  const bool is_general =  // U+200E, U+200F, U+2028 to U+202E
      first == 0xE2 && second == 0x80 &&
      (third == 0x8E || third == 0x8F || (third >= 0xA8 && third <= 0xAE));
  const bool is_isolate =  // U+2066 to U+2069
      first == 0xE2 && second == 0x81 && third >= 0xA6 && third <= 0xA9;
  return is_general || is_isolate ? 3 : 0;
}

class TextFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message,
              spdlog::memory_buf_t& line) override {
    Append(Timestamp(message.time), line);
    Append(" ", line);
    Append(LevelName(message.level), line);
    Append(" ", line);
    for (absl::string_view text = PartsOf(message).message; !text.empty();) {
      const size_t control = BytesOfControl(text);
      for (const char c : text.substr(0, control)) {
        const auto byte = static_cast<unsigned char>(c);
        Append(absl::StrFormat("\\x%02x", byte), line);
      }
      if (control == 0) line.push_back(text.front());
      text.remove_prefix(std::max<size_t>(control, 1));
    }
    Append("\n", line);
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<TextFormatter>();
  }
};

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message,
              spdlog::memory_buf_t& line) override {
    const LogParts parts = PartsOf(message);
    const OrderedJson object = {
        {"time", Timestamp(message.time)},
        {"level", static_cast<std::string>(LevelName(message.level))},
        {"message", static_cast<std::string>(parts.message)}};
    std::string text = JsonLine(object);
    if (!parts.fields.empty()) {
      text.pop_back();
      absl::StrAppend(&text, ",", parts.fields, "}");
    }
    Append(text, line);
    Append("\n", line);
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }
};

// Lines that wait for their reader; the oldest make room for new ones.
constexpr size_t kMostLinesInQueue = 4096;
// For a reader that is slow, before the process ends.
constexpr std::chrono::milliseconds kFlushTime{1000};

// The queue, the thread that empties it, and where to.
struct LogWriter {
  const std::shared_ptr<spdlog::details::thread_pool> thread =
      std::make_shared<spdlog::details::thread_pool>(kMostLinesInQueue, 1);
  const std::shared_ptr<LogSink> sink = std::make_shared<LogSink>(
      STDERR_FILENO,
      [queue = thread.get()] { return queue->overrun_counter(); });
};

// It is never destroyed: its thread may be waiting for a reader.
LogWriter& Writer() {
  static auto* writer = new LogWriter();
  return *writer;
}

std::atomic<bool> set_up{false};
std::atomic<bool> fatal_told{false};

// The process is about to abort.
void LogFatal(const char* library, const std::string& message) {
  spdlog::critical(absl::StrCat(library, ": ", message));
  FlushLog();
  fatal_told = true;
}

// What gRPC calls an error is mostly what a caller or a network did. Only what
// it says before it ends the process is ours to tell.
void LogForGrpc(gpr_log_func_args* args) {
  if (absl::StartsWith(args->message, "assertion failed")) {
    LogFatal("grpc", args->message);
  } else {
    spdlog::debug(absl::StrCat("grpc: ", args->message));
  }
}

// What cannot be parsed is a caller's message, and the caller is told.
void LogForProtobuf(google::protobuf::LogLevel level, const char* /*file*/,
                    int /*line*/, const std::string& message) {
  if (level == google::protobuf::LOGLEVEL_FATAL) {
    LogFatal("protobuf", message);
    return;
  }
  spdlog::level::level_enum ours = spdlog::level::debug;
  if (level == google::protobuf::LOGLEVEL_ERROR &&
      !absl::StrContains(message, "parsing")) {
    ours = spdlog::level::err;
  }
  spdlog::log(ours, absl::StrCat("protobuf: ", message));
}

}  // namespace

std::unique_ptr<spdlog::formatter> MakeTextFormatter() {
  return std::make_unique<TextFormatter>();
}

std::unique_ptr<spdlog::formatter> MakeJsonFormatter() {
  return std::make_unique<JsonFormatter>();
}

void SetUpLog(const std::string& level, const std::string& format) {
  LogWriter& writer = Writer();
  set_up = true;
  SetLogHasFields(format == "json");
  auto logger = std::make_shared<spdlog::async_logger>(
      "attention", writer.sink, writer.thread,
      spdlog::async_overflow_policy::overrun_oldest);
  logger->set_formatter(format == "json" ? MakeJsonFormatter()
                                         : MakeTextFormatter());
  logger->set_level(spdlog::level::from_str(level));
  // spdlog would say on stderr, and wait for its reader, that there is no
  // memory for a line.
  logger->set_error_handler([](const std::string&) {});
  spdlog::set_default_logger(std::move(logger));
  gpr_set_log_function(&LogForGrpc);
  google::protobuf::SetLogHandler(&LogForProtobuf);
}

bool FlushLog() {
  LogSink& sink = *Writer().sink;
  const int64_t before = sink.flushes();
  spdlog::default_logger_raw()->flush();
  return sink.WaitForFlush(before + 1, kFlushTime);
}

int64_t DroppedLines() {
  if (!set_up) return 0;
  return static_cast<int64_t>(Writer().thread->overrun_counter());
}

bool ToldOfFatal() { return fatal_told; }

}  // namespace attention::server
