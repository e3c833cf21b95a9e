#ifndef ATTENTION_SERVER_TELEMETRY_LOG_SINK_H_
#define ATTENTION_SERVER_TELEMETRY_LOG_SINK_H_

#include <spdlog/sinks/base_sink.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

#include "absl/strings/string_view.h"

namespace attention::server {

/// Writes `text` to `descriptor` as fast as its reader takes it, in pieces that
/// other writers of a pipe cannot cut in two. False where it has not taken all
/// within `patience` (below 0: none), or takes nothing any more.
bool WriteWhenRead(int descriptor, absl::string_view text,
                   std::chrono::milliseconds patience);

/// Where the log's own thread writes: to a pipe, a socket, a terminal or a
/// file, which it waits for as long as it takes. Meanwhile the queue in front
/// of it drops lines; how many is told in a line of its own, where they would
/// have been.
class LogSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  /// `dropped` says how many lines have been dropped since the start.
  LogSink(int descriptor, std::function<size_t()> dropped)
      : descriptor_(descriptor), dropped_(std::move(dropped)) {}

  /// How often flush_() was reached, for WaitForFlush().
  int64_t flushes() const;
  /// Until flushes() is `count`, for at most `patience`; false if it is not.
  bool WaitForFlush(int64_t count, std::chrono::milliseconds patience);

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override;

 private:
  void Write(const spdlog::details::log_msg& message);
  void TellOfDropped();

  const int descriptor_;
  const std::function<size_t()> dropped_;
  size_t told_ = 0;  // of dropped_()

  mutable std::mutex flush_mutex_;
  std::condition_variable flushed_;
  int64_t flushes_ = 0;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_LOG_SINK_H_
