#ifndef ATTENTION_SERVER_TRANSPORT_CONNECTIONS_H_
#define ATTENTION_SERVER_TRANSPORT_CONNECTIONS_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/base/file_descriptor.h"
#include "server/base/token_bucket.h"
#include "server/scheduling/ledger.h"
#include "server/transport/connection_limits.h"
#include "server/transport/peer.h"

namespace attention::server {

/// The connections that are open: counts them, and can close one that gRPC
/// serves. gRPC 1.51 tells nobody when a connection ends, and has no way to
/// end one. So this keeps a second descriptor of each socket. gRPC shuts a
/// socket down before it closes its own descriptor, which the second one is
/// told (EPOLLHUP); and shutting it down here ends gRPC's use of it.
///
/// May be used from several threads at once.
class Connections {
 public:
  enum class Answer : uint8_t { kTaken, kFull, kPeerFull, kPeerCalls, kFailed };

  /// Connections are counted in `ledger`, which outlives this. An address with
  /// more than `most_calls` open calls gets no further ones.
  Connections(Ledger& ledger, const ConnectionLimits& limits,
              int64_t most_calls = std::numeric_limits<int64_t>::max());

  const ConnectionLimits& limits() const { return limits_; }

  /// Counts a socket that was accepted, unless that is one too many, or its
  /// address has too many open calls. kFailed where it could not be watched,
  /// for lack of a descriptor.
  Answer Add(int socket);
  /// How many were taken, and how many were not, since the start.
  int64_t accepted() const { return accepted_; }
  int64_t refused() const { return refused_; }

  /// The connection of a call that its caller has reset; `grpc_peer` is what
  /// grpc::ServerContext::peer() says. Closes the connection where its calls
  /// are reset in a storm: 1000 at once, or 100 a second for long.
  void NoteReset(const std::string& grpc_peer);

  /// Ends gRPC's use of the connection of a call; likewise.
  void Close(const std::string& grpc_peer);
  void Close(const Peer& peer);

  bool Has(const Peer& peer) const;
  /// Whether gRPC has not yet read all that came.
  bool HasUnread(const Peer& peer) const;
  /// How many are open, as far as it has been collected.
  size_t Count() const;

  /// shutdown() on each: SHUT_RD has gRPC end what it still writes first.
  void ShutDownAll(int how);

  /// Forgets those that have ended. How many are left.
  int64_t Collect();
  /// True as soon as none is left, false where some are at `deadline`.
  bool WaitUntilNone(std::chrono::steady_clock::time_point deadline);

  /// Readable when there is something to Collect().
  int epoll() const { return epoll_.get(); }

  /// Readable when a connection is new, has received something, read by now or
  /// not, or has ended, since TakeArrived() last told of it.
  int arrivals() const { return arrivals_.get(); }
  std::vector<Peer> TakeArrived();

 private:
  struct Connection {
    FileDescriptor socket;
    std::optional<Peer> peer;  // none: it has ended already
    Ledger::Hold hold;
    TokenBucket resets;
  };

  Answer TryAdd(int socket);
  void CollectLocked();     // mutex_ is held
  void Forget(int number);  // likewise

  Ledger& ledger_;
  const ConnectionLimits limits_;
  const int64_t most_calls_;
  const FileDescriptor epoll_;
  const FileDescriptor arrivals_;  // of epoll too
  std::atomic<int64_t> accepted_{0};
  std::atomic<int64_t> refused_{0};
  mutable std::mutex mutex_;
  std::unordered_map<int, Connection> connections_;  // by the socket's number
  absl::flat_hash_map<Peer, int> by_peer_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TRANSPORT_CONNECTIONS_H_
