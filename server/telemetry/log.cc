#include "server/telemetry/log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

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

class TextFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message,
              spdlog::memory_buf_t& line) override {
    Append(Timestamp(message.time), line);
    Append(" ", line);
    Append(LevelName(message.level), line);
    Append(" ", line);
    for (const char c : message.payload) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x20 || byte == 0x7F) {
        Append(absl::StrFormat("\\x%02x", byte), line);
      } else {
        line.push_back(c);
      }
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
    const nlohmann::json object = {
        {"time", Timestamp(message.time)},
        {"level", static_cast<std::string>(LevelName(message.level))},
        {"message",
         std::string(message.payload.data(), message.payload.size())}};
    // Bytes that are not UTF-8 become U+FFFD instead of an exception.
    Append(object.dump(-1, ' ', /*ensure_ascii=*/false,
                       nlohmann::json::error_handler_t::replace),
           line);
    Append("\n", line);
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }
};

// What gRPC calls an error is mostly what a caller or a network did. Only what
// it says before it ends the process is ours to tell.
void LogForGrpc(gpr_log_func_args* args) {
  const bool fatal = absl::StartsWith(args->message, "assertion failed");
  spdlog::log(fatal ? spdlog::level::critical : spdlog::level::debug,
              "grpc: {}", args->message);
}

// What cannot be parsed is a caller's message, and the caller is told.
void LogForProtobuf(google::protobuf::LogLevel level, const char* /*file*/,
                    int /*line*/, const std::string& message) {
  spdlog::level::level_enum ours = spdlog::level::debug;
  if (level == google::protobuf::LOGLEVEL_FATAL) {
    ours = spdlog::level::critical;
  } else if (level == google::protobuf::LOGLEVEL_ERROR &&
             !absl::StrContains(message, "parsing")) {
    ours = spdlog::level::err;
  }
  spdlog::log(ours, "protobuf: {}", message);
}

}  // namespace

std::unique_ptr<spdlog::formatter> MakeTextFormatter() {
  return std::make_unique<TextFormatter>();
}

std::unique_ptr<spdlog::formatter> MakeJsonFormatter() {
  return std::make_unique<JsonFormatter>();
}

void SetUpLog(const std::string& level, const std::string& format) {
  auto logger = std::make_shared<spdlog::logger>(
      "attention", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_formatter(format == "json" ? MakeJsonFormatter()
                                         : MakeTextFormatter());
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(std::move(logger));
  gpr_set_log_function(&LogForGrpc);
  google::protobuf::SetLogHandler(&LogForProtobuf);
}

}  // namespace attention::server
