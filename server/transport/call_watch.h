#ifndef ATTENTION_SERVER_TRANSPORT_CALL_WATCH_H_
#define ATTENTION_SERVER_TRANSPORT_CALL_WATCH_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "server/base/file_descriptor.h"
#include "server/scheduling/ledger.h"
#include "server/scheduling/open_calls.h"
#include "server/telemetry/log_limit.h"
#include "server/transport/channelz.h"
#include "server/transport/connections.h"

namespace attention::server {

/// Closes connections with more open calls than one, its address or all may
/// have, on a thread of its own. gRPC 1.51 holds a caller to
/// MAX_CONCURRENT_STREAMS only once that has acknowledged the setting, and
/// shows nobody a call before its message has come, so this asks channelz: of
/// each connection that has received something, at most once in 20 ms, and for
/// 10 s more twice a second, which takes some 10 us; connections at rest cost
/// nothing. gRPC takes some 3000
/// calls in 20 ms on a core, 40 MiB.
class CallWatch {
 public:
  /// `source` tells of the sockets that `connections` are. A connection may
  /// have twice `per_connection` calls: those that have ended count until gRPC
  /// has freed them. Calls are counted in `ledger`. All live longer than this.
  CallWatch(channelz::Source source, int64_t per_connection,
            const OpenCallLimits& limits, Connections& connections,
            Ledger& ledger);
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  /// Connections that were closed since the start.
  int64_t closed() const { return closed_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::time_point kNever = Clock::time_point::min();
  struct Watched {
    int64_t socket = 0;  // channelz's number
    int64_t started = 0;
    Ledger::Hold open = {};  // of kCalls
    int quiet = 0;           // looks in a row that saw nothing new
    // Its calls are counted until gRPC has ended them, which takes it several
    // times as long as to begin them.
    bool closed = false;
    Clock::time_point seen = kNever;
  };

  void Run();
  /// False where it is time to end.
  bool Wait(int epoll, std::chrono::milliseconds time) const;
  /// One round: a look at those of which something may have changed.
  void Look();
  /// Counts its calls, and closes it where there are too many.
  void LookAt(const Peer& peer);
  void FindSockets();
  void FindSocketsAfter(int64_t socket);
  /// Closes what is beyond the limits of `addresses`, after a look at theirs,
  /// and of all.
  void Enforce(const absl::flat_hash_set<std::string>& addresses);
  /// Those of an address with more than a few calls, or with more to come.
  void CloseThoseOf(const std::string& address, int64_t most, const char* of);
  void Close(const Peer& peer, Watched& watched, int64_t most, const char* of);
  void ForgetEnded();

  const channelz::Source source_;
  const int64_t per_connection_;
  const OpenCallLimits limits_;
  Connections& connections_;
  Ledger& ledger_;
  const FileDescriptor stop_;  // an eventfd
  int64_t newest_ = 0;         // channelz's number of a connection
  Clock::time_point found_all_ = kNever;
  absl::flat_hash_map<Peer, Watched> watched_;
  // Looked at in the next round too: its calls were just becoming more, or
  // channelz did not know it yet.
  absl::flat_hash_set<Peer> again_;
  bool missed_ = false;  // the last round ended early: all are due
  std::atomic<int64_t> closed_{0};
  LogLimit closed_to_tell_;
  LogLimit failed_;
  std::thread thread_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TRANSPORT_CALL_WATCH_H_
