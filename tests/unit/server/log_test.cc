#include "server/telemetry/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "server/telemetry/log_event.h"
#include "server/telemetry/model_statistics.h"
#include "server/telemetry/request_facts.h"
#include "server/telemetry/trace_context.h"

namespace attention::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Format(spdlog::formatter& formatter, const std::string& text) {
  const spdlog::log_clock::time_point time{
      std::chrono::milliseconds(1'700'000'000'042)};
  const spdlog::details::log_msg message(time, spdlog::source_loc{}, "test",
                                         spdlog::level::info, text);
  spdlog::memory_buf_t line;
  formatter.format(message, line);
  return {line.data(), line.size()};
}

TEST(TextFormatter, HasTimeLevelAndMessage) {
  EXPECT_EQ(Format(*MakeTextFormatter(), "hello"),
            "2023-11-14T22:13:20.042Z info hello\n");
}

TEST(TextFormatter, KeepsEveryMessageOnOneLine) {
  EXPECT_EQ(Format(*MakeTextFormatter(), "a\r\nb\x1B[31m"),
            "2023-11-14T22:13:20.042Z info a\\x0d\\x0ab\\x1b[31m\n");
}

TEST(TextFormatter, EscapesControlsBeyondAscii) {
  EXPECT_EQ(Format(*MakeTextFormatter(),
                   "a\xC2\x85\xC2\x9B"
                   "31m\xE2\x80\xA8\xE2\x80\xAE\xE2\x81\xA6\xD8\x9C"),
            "2023-11-14T22:13:20.042Z info a\\xc2\\x85\\xc2\\x9b31m"
            "\\xe2\\x80\\xa8\\xe2\\x80\\xae\\xe2\\x81\\xa6\\xd8\\x9c\n");
}

TEST(TextFormatter, KeepsLettersBeyondAscii) {
  const std::string letters =
      "\xC2\xA0\xC3\xA9\xD8\xA7\xE2\x80\x9C\xE2\x82\xAC\xF0\x9F\x99\x82\xC2";
  EXPECT_EQ(Format(*MakeTextFormatter(), letters),
            "2023-11-14T22:13:20.042Z info " + letters + "\n");
}

TEST(JsonFormatter, IsOneObject) {
  const auto object =
      nlohmann::json::parse(Format(*MakeJsonFormatter(), "hello"));
  EXPECT_EQ(object["time"], "2023-11-14T22:13:20.042Z");
  EXPECT_EQ(object["level"], "info");
  EXPECT_EQ(object["message"], "hello");
}

TEST(JsonFormatter, IsValidWhateverTheMessageHas) {
  for (const std::string& text :
       {std::string("quote \" backslash \\ newline \n"), std::string("\0x", 2),
        std::string("\xFF\xC0\x80 not UTF-8"), std::string("\xE2\x82\xAC")}) {
    const std::string line = Format(*MakeJsonFormatter(), text);
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  }
  const auto object = nlohmann::json::parse(
      Format(*MakeJsonFormatter(), "quote \" newline \n \xE2\x82\xAC"));
  EXPECT_EQ(object["message"], "quote \" newline \n \xE2\x82\xAC");
}

// What the process's log gets while it exists.
class CapturedLog {
 public:
  explicit CapturedLog(spdlog::level::level_enum level)
      : previous_(spdlog::default_logger()) {
    auto logger = std::make_shared<spdlog::logger>(
        "captured", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_));
    logger->set_level(level);
    spdlog::set_default_logger(std::move(logger));
  }
  ~CapturedLog() {
    SetLogHasFields(false);
    spdlog::set_default_logger(previous_);
  }

  // From now on as JSON, with fields.
  void UseJson() {
    spdlog::default_logger()->set_formatter(MakeJsonFormatter());
    SetLogHasFields(true);
  }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> previous_;
};

TEST(RequestFacts, SaysWhatAnsweredAtDebug) {
  const CapturedLog log(spdlog::level::debug);
  RequestFacts record;
  record.operation = "attend";
  record.id = "a\n\"b";
  record.peer = "ipv4:127.0.0.1:5";
  record.details = "[1, 2] [2, 2] [2, 1]";
  record.backend = "reference";
  record.kernel = "fp64_tiles";
  record.queue_time = std::chrono::microseconds(12);
  record.compute_time = std::chrono::microseconds(34);
  Observe(record);
  EXPECT_THAT(
      log.text(),
      AllOf(HasSubstr(R"(id="a\n\"b")"), HasSubstr("peer=ipv4:127.0.0.1:5"),
            HasSubstr("backend=reference kernel=fp64_tiles"),
            HasSubstr("queue_us=12 compute_us=34 transfer_us=0 status=OK")));
}

RequestFacts SomeFacts() {
  RequestFacts record;
  record.operation = "attend";
  record.id = "a\n\"b\xff";
  record.peer = "ipv4:127.0.0.1:5";
  record.caller = "ranker";
  record.scoring_name = "additive_attention";
  record.trace_parent =
      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  record.details = "[1, 2] [2, 2] [2, 1]";
  record.backend = "reference";
  record.kernel = "fp64_tiles";
  record.queue_time = std::chrono::milliseconds(250);
  record.compute_time = std::chrono::milliseconds(500);
  record.request_bytes = 123;
  return record;
}

TEST(RequestFacts, HasAFieldForEachFactInJson) {
  CapturedLog log(spdlog::level::debug);
  log.UseJson();
  Observe(SomeFacts());
  auto line = nlohmann::json::parse(log.text());
  EXPECT_EQ(line["time"].get<std::string>().size(), 24U);
  line.erase("time");
  EXPECT_EQ(line, nlohmann::json::parse(R"({
    "level": "debug", "message": "answered attend", "event": "request",
    "outcome": "answered", "code": "OK", "operation": "attend",
    "id": "a\n\"b\uFFFD", "peer": "ipv4:127.0.0.1:5", "caller": "ranker",
    "model": "additive_attention", "shapes": "[1, 2] [2, 2] [2, 1]",
    "backend": "reference", "kernel": "fp64_tiles", "queue_seconds": 0.25,
    "compute_seconds": 0.5, "transfer_seconds": 0.0, "request_bytes": 123,
    "reply_bytes": 0,
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "trace_id": "0af7651916cd43dd8448eb211c80319c"})"));
}

TEST(RequestFacts, SaysInJsonWhyOneWasRefused) {
  CapturedLog log(spdlog::level::info);
  log.UseJson();
  RequestFacts record = SomeFacts();
  record.refused = true;
  record.refusal = Refusal::kCallerMemory;
  record.status = absl::ResourceExhaustedError("full");
  Observe(record);
  const auto line = nlohmann::json::parse(log.text());
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["message"], "refused attend: full");
  EXPECT_EQ(line["outcome"], "refused");
  EXPECT_EQ(line["code"], "RESOURCE_EXHAUSTED");
  EXPECT_EQ(line["reason"], "caller_memory");
}

TEST(RequestFacts, LeavesOutInJsonWhatThereIsNot) {
  CapturedLog log(spdlog::level::debug);
  log.UseJson();
  Observe(RequestFacts());
  const auto line = nlohmann::json::parse(log.text());
  for (const char* name : {"id", "caller", "model", "shapes", "backend",
                           "kernel", "reason", "traceparent", "trace_id"}) {
    EXPECT_FALSE(line.contains(name)) << name;
  }
}

// What a caller chose is in a field, or escaped: it makes no field of its own.
TEST(LogEvent, NoTextMakesAField) {
  CapturedLog log(spdlog::level::info);
  log.UseJson();
  const std::string text = R"(","level":"error"}{"event":"x"})";
  spdlog::info("{}", text);
  LogEvent(spdlog::level::info, "test", text, {{"field", text}, {"count", 3}});
  const std::vector<std::string> lines =
      absl::StrSplit(log.text(), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 2U);
  auto plain = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(plain["message"], text);
  EXPECT_FALSE(plain.contains("event"));
  auto event = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(event["message"], text);
  EXPECT_EQ(event["level"], "info");
  EXPECT_EQ(event["event"], "test");
  EXPECT_EQ(event["field"], text);
  EXPECT_EQ(event["count"], 3);
}

TEST(RequestFacts, WarnsOfRefusals) {
  const CapturedLog log(spdlog::level::info);
  RequestFacts record;
  record.refused = true;
  record.status = absl::InvalidArgumentError("query: missing");
  Observe(record);
  EXPECT_THAT(log.text(), AllOf(HasSubstr("warning"), HasSubstr("refused"),
                                HasSubstr("INVALID_ARGUMENT"),
                                HasSubstr("query: missing")));
}

TEST(RequestFacts, WarnsOfFailures) {
  const CapturedLog log(spdlog::level::info);
  RequestFacts record;
  record.operation = "attend";
  record.model = std::make_shared<ModelCounters>("a_model");
  record.compute_time = std::chrono::microseconds(34);
  record.status = absl::InternalError("the device is lost");
  Observe(record);
  EXPECT_THAT(log.text(),
              AllOf(HasSubstr("warning"), HasSubstr("failed attend"),
                    HasSubstr("model=\"a_model\""), HasSubstr("compute_us=34"),
                    HasSubstr("INTERNAL"), HasSubstr("the device is lost")));
}

TEST(RequestFacts, TellsTheTraceThatACallIsPartOf) {
  const CapturedLog log(spdlog::level::debug);
  RequestFacts record;
  record.trace_parent =
      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  Observe(record);
  EXPECT_THAT(log.text(), HasSubstr("trace=" + record.trace_parent));
}

constexpr char kTraceIds[] =
    "-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceParent, IsTakenAsTheStandardWritesItAndNotOtherwise) {
  const std::string good = absl::StrCat("00", kTraceIds);
  EXPECT_EQ(ReadTraceParent(good), good);
  for (const size_t place : {0, 2, 3, 34, 35, 36, 51, 52, 53, 54}) {
    std::string bad = good;
    bad[place] = 'X';
    EXPECT_EQ(ReadTraceParent(bad), "") << bad;
  }
  for (const char* bad :
       {"", "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"}) {
    EXPECT_EQ(ReadTraceParent(bad), "") << bad;
  }
  for (const char* more : {"0", "-more"}) {
    EXPECT_EQ(ReadTraceParent(good + more), "") << more;
  }
}

// It begins with all that version 00 has.
TEST(TraceParent, OfALaterVersionIsTakenForWhatItSharesWithTheFirst) {
  const std::string first = absl::StrCat("00", kTraceIds);
  for (const char* version : {"01", "cc", "fe"}) {
    const std::string later = absl::StrCat(version, kTraceIds);
    EXPECT_EQ(ReadTraceParent(later), first);
    EXPECT_EQ(ReadTraceParent(later + "-more"), first);
    EXPECT_EQ(ReadTraceParent(later + "more"), "");
  }
  for (const char* no_version : {"ff", "0A", "0", "xy", ""}) {
    EXPECT_EQ(ReadTraceParent(absl::StrCat(no_version, kTraceIds)), "");
  }
}

TEST(TraceParent, FlagsThatTheStandardDoesNotKnowAreLeftOut) {
  const std::string ids(absl::string_view(kTraceIds).substr(0, 51));
  for (const auto& [flags, known] :
       std::vector<std::pair<std::string, std::string>>{
           {"00", "00"}, {"03", "03"}, {"fe", "02"}, {"a9", "01"}}) {
    EXPECT_EQ(ReadTraceParent(absl::StrCat("00", ids, flags)),
              absl::StrCat("00", ids, known));
  }
}

TEST(RequestFacts, IsQuietAboutTheRestAtInfo) {
  const CapturedLog log(spdlog::level::info);
  Observe(RequestFacts());
  EXPECT_EQ(log.text(), "");
  EXPECT_FALSE(WantsDetails());
}

TEST(RequestFacts, ACallersCancellingIsADebugLine) {
  RequestFacts record;
  record.refused = true;
  record.status = absl::CancelledError("the caller cancelled the request");
  {
    const CapturedLog log(spdlog::level::info);
    Observe(record);
    EXPECT_EQ(log.text(), "");
  }
  const CapturedLog log(spdlog::level::debug);
  Observe(record);
  EXPECT_THAT(log.text(), AllOf(HasSubstr("debug"), HasSubstr("CANCELLED")));
}

TEST(RequestFacts, CutsWhatACallerChose) {
  const CapturedLog log(spdlog::level::debug);
  RequestFacts record;
  record.id = std::string(1 << 20, 'x');
  Observe(record);
  EXPECT_THAT(log.text(), HasSubstr("xxx...\""));
  EXPECT_LT(log.text().size(), size_t{8} << 10);
}

TEST(RequestFacts, WarnsOfManyRefusalsInOneLine) {
  const CapturedLog log(spdlog::level::info);
  RequestFacts record;
  record.refused = true;
  record.status = absl::InvalidArgumentError("query: missing");
  constexpr int kRefusals = 20'000;
  for (int i = 0; i < kRefusals; ++i) Observe(record);
  TellOfRefusalsLeftOut();
  int64_t told = 0;
  int64_t left_out = 0;
  for (const absl::string_view line : absl::StrSplit(log.text(), '\n')) {
    const size_t more = line.find(" more requests were refused");
    if (absl::StrContains(line, "query: missing")) ++told;
    if (more == absl::string_view::npos) continue;
    int64_t count = 0;
    const size_t begin = line.rfind(' ', more - 1) + 1;
    ASSERT_TRUE(absl::SimpleAtoi(line.substr(begin, more - begin), &count));
    left_out += count;
  }
  EXPECT_GT(told, 0);
  EXPECT_GT(left_out, 0);
  EXPECT_EQ(told + left_out, kRefusals);
}

}  // namespace
}  // namespace attention::server
