#ifndef ATTENTION_SERVER_SCHEDULING_OPEN_CALLS_H_
#define ATTENTION_SERVER_SCHEDULING_OPEN_CALLS_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "server/scheduling/ledger.h"

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

  /// OK, or RESOURCE_EXHAUSTED where three quarters of what an address may have
  /// are open: streams are refused then, before its connections are closed.
  absl::Status CheckRoom(const Ledger& ledger,
                         const std::string& address) const;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_OPEN_CALLS_H_
