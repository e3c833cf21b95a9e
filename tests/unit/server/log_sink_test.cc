#include "server/telemetry/log_sink.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/async_logger.h>
#include <spdlog/details/thread_pool.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/telemetry/log.h"

namespace attention::server {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;

constexpr std::chrono::minutes kPatience{1};

class Pipe {
 public:
  Pipe() {
    EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
    // As in the server: else writing to who is gone ends the process.
    std::signal(SIGPIPE, SIG_IGN);
  }
  ~Pipe() {
    CloseReader();
    close(ends_[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int writer() const { return ends_[1]; }
  void CloseReader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }
  // Until nothing more fits.
  void Fill() const {
    const std::string page(4096, '.');
    while (WriteWhenRead(ends_[1], page, std::chrono::milliseconds(0))) {
    }
  }
  // The lines up to the one that ends with `last`, and that one.
  std::vector<std::string> ReadLinesUpTo(const std::string& last) const {
    std::string text;
    std::array<char, 4096> buffer;
    while (text.find(last + "\n") == std::string::npos) {
      const ssize_t count = read(ends_[0], buffer.data(), buffer.size());
      if (count <= 0) break;
      text.append(buffer.data(), static_cast<size_t>(count));
    }
    text.erase(0, text.find_first_not_of('.'));
    return absl::StrSplit(text, '\n', absl::SkipEmpty());
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

TEST(WriteWhenRead, GivesUpOnAPipeThatNobodyReads) {
  const Pipe pipe;
  pipe.Fill();
  EXPECT_FALSE(
      WriteWhenRead(pipe.writer(), "line\n", std::chrono::milliseconds(10)));
}

TEST(WriteWhenRead, GivesUpWhereTheReaderIsGone) {
  Pipe pipe;
  pipe.CloseReader();
  EXPECT_FALSE(WriteWhenRead(pipe.writer(), "line\n", kPatience));
}

// A log with a queue of so many lines, as the server's.
class TestLog {
 public:
  TestLog(int descriptor, size_t lines)
      : thread_(std::make_shared<spdlog::details::thread_pool>(lines, 1)),
        sink_(std::make_shared<LogSink>(descriptor,
                                        [this, queue = thread_.get()] {
                                          const size_t dropped =
                                              queue->overrun_counter();
                                          writes_ = true;
                                          return dropped;
                                        })),
        logger_(std::make_shared<spdlog::async_logger>(
            "test", sink_, thread_,
            spdlog::async_overflow_policy::overrun_oldest)) {
    logger_->set_pattern("%l %v");
  }

  spdlog::logger& operator*() { return *logger_; }
  LogSink& sink() { return *sink_; }
  // What is dropped from then on is told behind the line that is written.
  void WaitUntilALineIsWritten() const {
    while (!writes_) std::this_thread::yield();
  }

 private:
  std::atomic<bool> writes_{false};
  const std::shared_ptr<spdlog::details::thread_pool> thread_;
  const std::shared_ptr<LogSink> sink_;
  const std::shared_ptr<spdlog::async_logger> logger_;
};

TEST(LogSink, WritesLinesInTheirOrder) {
  const Pipe pipe;
  TestLog log(pipe.writer(), 100);
  for (const char* line : {"a", "b", "c"}) (*log).info(line);
  EXPECT_THAT(pipe.ReadLinesUpTo("c"),
              ElementsAre("info a", "info b", "info c"));
}

TEST(LogSink, FlushComesAfterTheLinesBefore) {
  const Pipe pipe;
  TestLog log(pipe.writer(), 100);
  (*log).info("a");
  (*log).flush();
  EXPECT_TRUE(log.sink().WaitForFlush(1, kPatience));
  EXPECT_THAT(pipe.ReadLinesUpTo("a"), ElementsAre("info a"));
}

TEST(LogSink, NobodyWaitsForAReaderWhoIsToldOfWhatWasDropped) {
  const Pipe pipe;
  pipe.Fill();
  TestLog log(pipe.writer(), 4);
  (*log).info("the first");
  log.WaitUntilALineIsWritten();  // its thread now waits for the reader
  for (int i = 1; i <= 100; ++i) (*log).info("line {}", i);
  (*log).flush();
  EXPECT_FALSE(log.sink().WaitForFlush(1, std::chrono::milliseconds(10)));
  EXPECT_THAT(
      pipe.ReadLinesUpTo("line 100"),
      ElementsAre(
          EndsWith("info the first"),
          "warning log: 97 lines were dropped, nobody read them in time",
          "info line 98", "info line 99", "info line 100"));
  EXPECT_TRUE(log.sink().WaitForFlush(1, kPatience));
}

TEST(LogSink, ALineLongerThanAPipeTakesAtOnceArrivesWhole) {
  const Pipe pipe;
  TestLog log(pipe.writer(), 4);
  const std::string text(300'000, 'x');
  (*log).info(text);
  EXPECT_THAT(pipe.ReadLinesUpTo("x"), ElementsAre("info " + text));
}

}  // namespace
}  // namespace attention::server
