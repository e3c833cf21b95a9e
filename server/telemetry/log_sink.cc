#include "server/telemetry/log_sink.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

using Clock = std::chrono::steady_clock;

// What poll() takes: rounded up, so that it never spins; -1 is for ever.
int PollTime(std::chrono::milliseconds patience, Clock::time_point end) {
  if (patience < std::chrono::milliseconds::zero()) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

}  // namespace

bool WriteWhenRead(int descriptor, absl::string_view text,
                   std::chrono::milliseconds patience) {
  const Clock::time_point end = Clock::now() + patience;
  while (!text.empty()) {
    pollfd writable{descriptor, POLLOUT, 0};
    const int ready = poll(&writable, 1, PollTime(patience, end));
    if (ready == 0) return false;
    if (ready < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    // A pipe that says that it can be written to has room for PIPE_BUF bytes,
    // and takes so many as a whole.
    const ssize_t written =
        write(descriptor, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (written > 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (written == 0 || (errno != EINTR && errno != EAGAIN)) {
      return false;
    }
  }
  return true;
}

void LogSink::sink_it_(const spdlog::details::log_msg& message) {
  TellOfDropped();
  Write(message);
}

void LogSink::flush_() {
  TellOfDropped();
  const std::lock_guard lock(flush_mutex_);
  ++flushes_;
  flushed_.notify_all();
}

// What was dropped lay in the queue before the line that is written next.
void LogSink::TellOfDropped() {
  const size_t dropped = dropped_();
  if (dropped == told_) return;
  const std::string text = absl::StrCat(
      "log: ", dropped - told_,
      dropped - told_ == 1 ? " line was dropped" : " lines were dropped",
      ", nobody read them in time");
  told_ = dropped;
  Write({"", spdlog::level::warn, text});
}

void LogSink::Write(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  formatter_->format(message, line);
  // A line that cannot be written has no other place to go.
  WriteWhenRead(descriptor_, {line.data(), line.size()},
                std::chrono::milliseconds(-1));
}

int64_t LogSink::flushes() const {
  const std::lock_guard lock(flush_mutex_);
  return flushes_;
}

bool LogSink::WaitForFlush(int64_t count, std::chrono::milliseconds patience) {
  std::unique_lock lock(flush_mutex_);
  return flushed_.wait_for(lock, patience, [&] { return flushes_ >= count; });
}

}  // namespace attention::server
