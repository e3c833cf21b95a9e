#ifndef ATTENTION_SERVER_SCHEDULING_OPEN_CALLS_H_
#define ATTENTION_SERVER_SCHEDULING_OPEN_CALLS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace attention::server {

/// How many calls may be open at once, whatever they do: one that is open has
/// its price in gRPC's memory from its first byte on, and longer than until its
/// caller is known.
struct OpenCallLimits {
  /// What an open call takes, in bytes: 12 KiB where only its HEADERS came, 15
  /// KiB for Health.Watch, 19 KiB for a stream of requests, as measured.
  static constexpr int64_t kPrice = 20 << 10;
  /// What all of them may take of --memory-limit.
  static constexpr int64_t kShareOfMemory = 8;
  /// However little memory there is.
  static constexpr int64_t kLeast = 128;

  int64_t total = 0;
  int64_t per_address = 0;

  /// Calls that a connection may have open where it is to have `wanted` >= 1 of
  /// them: half of what its address may have, so that one which keeps to what
  /// gRPC tells it is not closed. At least 1.
  int64_t OfConnection(int64_t wanted) const {
    return std::clamp<int64_t>(per_address / 2, 1, wanted);
  }

  /// For --memory-limit, in bytes: one address has half of all.
  static OpenCallLimits For(int64_t memory_limit) {
    const int64_t total =
        std::max(kLeast, memory_limit / kShareOfMemory / kPrice);
    return {total, total / 2};
  }
};

/// Counts open calls, of each address and of all, and connections that were
/// closed because of them. May be used from several threads at once.
class OpenCalls {
 public:
  explicit OpenCalls(const OpenCallLimits& limits) : limits_(limits) {}

  const OpenCallLimits& limits() const { return limits_; }

  /// `calls` more are open; fewer where it is below 0.
  void Add(const std::string& address, int64_t calls);

  int64_t Total() const;
  int64_t Of(const std::string& address) const;
  /// The address with most of them; "" where there is none.
  std::string Largest() const;

  /// OK, or RESOURCE_EXHAUSTED where three quarters of what an address may have
  /// are open: streams are refused then, before its connections are closed.
  absl::Status CheckRoom(const std::string& address) const;

  /// A connection was closed for what it has; how many since the start.
  void NoteClosed() { ++closed_; }
  int64_t closed() const { return closed_; }

 private:
  const OpenCallLimits limits_;
  mutable std::mutex mutex_;
  std::atomic<int64_t> closed_{0};
  int64_t total_ = 0;
  absl::flat_hash_map<std::string, int64_t> of_address_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_OPEN_CALLS_H_
