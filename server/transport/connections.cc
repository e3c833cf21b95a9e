#include "server/transport/connections.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

// Of calls that a caller resets: what one that hedges or gives up may do.
constexpr TokenBucket::Limit kResets = {.rate = 100, .burst = 1000};

// What a socket's buffer holds at most, in bytes: more than Linux gives one.
constexpr size_t kMostUnread = 8 << 20;

// A socket that has ended before it was asked, whoever's it was.
constexpr char kUnknown[] = "an unknown address";

std::string AddressOf(const std::optional<Peer>& peer) {
  return peer ? peer->address : kUnknown;
}

// Ends gRPC's use of a socket. What came by then would still be read, and may
// be many calls.
void End(int socket) {
  ::shutdown(socket, SHUT_RDWR);
  std::array<char, 16384> unread{};
  size_t left = kMostUnread;
  while (left >= unread.size() &&
         ::recv(socket, unread.data(), unread.size(), MSG_DONTWAIT) > 0) {
    left -= unread.size();
  }
}

}  // namespace

Connections::Connections(Ledger& ledger, const ConnectionLimits& limits,
                         int64_t most_calls)
    : ledger_(ledger),
      limits_(limits),
      most_calls_(most_calls),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      arrivals_(::epoll_create1(EPOLL_CLOEXEC)) {}

Connections::Answer Connections::Add(int socket) {
  const Answer answer = TryAdd(socket);
  ++(answer == Answer::kTaken ? accepted_ : refused_);
  return answer;
}

Connections::Answer Connections::TryAdd(int socket) {
  Connection connection{FileDescriptor(), PeerOfSocket(socket), {}, {}};
  const std::lock_guard lock(mutex_);
  CollectLocked();
  Answer answer = Answer::kTaken;
  connection.hold = ledger_.Take(
      Kept::kConnections, {.address = AddressOf(connection.peer)}, 0,
      [&](const Ledger::Account& all, const Ledger::Account& own) {
        if (all.of(Kept::kConnections).holds >= limits_.total) {
          answer = Answer::kFull;
        } else if (own.of(Kept::kConnections).holds >= limits_.per_peer) {
          answer = Answer::kPeerFull;
        } else if (own.of(Kept::kCalls).amount > most_calls_) {
          answer = Answer::kPeerCalls;
        }
        return answer == Answer::kTaken;
      });
  if (answer != Answer::kTaken) return answer;
  connection.socket = FileDescriptor(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
  if (!connection.socket.ok()) return Answer::kFailed;
  const int number = connection.socket.get();
  // EPOLLHUP is told without being asked for. At its edge alone: what gRPC has
  // to read from the socket, an error for instance, would be told again and
  // again until it does.
  epoll_event watched{};
  watched.events = EPOLLET;
  watched.data.fd = number;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, number, &watched) != 0) {
    return Answer::kFailed;
  }
  // An edge is told of only while what it stands for still holds, and gRPC may
  // have read what arrived by then. A socket that can be written keeps it.
  watched.events = EPOLLIN | EPOLLOUT | EPOLLET;
  if (::epoll_ctl(arrivals_.get(), EPOLL_CTL_ADD, number, &watched) != 0) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, number, nullptr);
    return Answer::kFailed;
  }
  if (connection.peer) by_peer_[*connection.peer] = number;
  connections_.emplace(number, std::move(connection));
  return Answer::kTaken;
}

void Connections::NoteReset(const std::string& grpc_peer) {
  const std::optional<Peer> peer = PeerOfCall(grpc_peer);
  if (!peer) return;
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_peer_.find(*peer);
    if (found == by_peer_.end()) return;
    Connection& connection = connections_.at(found->second);
    if (connection.resets.TryTake(kResets)) return;
    End(connection.socket.get());
    by_peer_.erase(found);  // so that it is told once
  }
  spdlog::warn(absl::StrCat("closed a connection of ", grpc_peer,
                            ": it reset more than ", kResets.rate,
                            " calls a second"));
}

void Connections::Close(const std::string& grpc_peer) {
  const std::optional<Peer> peer = PeerOfCall(grpc_peer);
  if (peer) Close(*peer);
}

void Connections::Close(const Peer& peer) {
  const std::lock_guard lock(mutex_);
  const auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) return;
  End(connections_.at(found->second).socket.get());
}

bool Connections::HasUnread(const Peer& peer) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) return false;
  int bytes = 0;
  const int socket = connections_.at(found->second).socket.get();
  return ::ioctl(socket, FIONREAD, &bytes) == 0 && bytes > 0;
}

bool Connections::Has(const Peer& peer) const {
  const std::lock_guard lock(mutex_);
  return by_peer_.contains(peer);
}

size_t Connections::Count() const {
  const std::lock_guard lock(mutex_);
  return connections_.size();
}

std::vector<Peer> Connections::TakeArrived() {
  std::vector<Peer> arrived;
  std::array<epoll_event, 64> events{};
  int count = 0;
  const std::lock_guard lock(mutex_);
  do {
    count = ::epoll_wait(arrivals_.get(), events.data(),
                         static_cast<int>(events.size()), /*timeout=*/0);
    for (int i = 0; i < count; ++i) {
      const auto found =
          connections_.find(events[static_cast<size_t>(i)].data.fd);
      if (found == connections_.end() || !found->second.peer) continue;
      arrived.push_back(*found->second.peer);
    }
  } while (count == static_cast<int>(events.size()));
  return arrived;
}

void Connections::ShutDownAll(int how) {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, connection] : connections_) {
    ::shutdown(connection.socket.get(), how);
  }
}

void Connections::Forget(int number) {
  const auto found = connections_.find(number);
  const Connection& ended = found->second;
  if (ended.peer) {
    const auto named = by_peer_.find(*ended.peer);
    if (named != by_peer_.end() && named->second == number) {
      by_peer_.erase(named);
    }
  }
  // Closing alone would not end it while gRPC has its descriptor open.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, number, nullptr);
  ::epoll_ctl(arrivals_.get(), EPOLL_CTL_DEL, number, nullptr);
  connections_.erase(found);
}

void Connections::CollectLocked() {
  std::array<epoll_event, 64> events{};
  int count = 0;
  do {
    count = ::epoll_wait(epoll_.get(), events.data(),
                         static_cast<int>(events.size()), /*timeout=*/0);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if ((event.events & EPOLLHUP) != 0) Forget(event.data.fd);
    }
  } while (count == static_cast<int>(events.size()));
}

int64_t Connections::Collect() {
  const std::lock_guard lock(mutex_);
  CollectLocked();
  return static_cast<int64_t>(connections_.size());
}

bool Connections::WaitUntilNone(
    std::chrono::steady_clock::time_point deadline) {
  while (Collect() > 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    // Not for long: another thread may collect the last one.
    pollfd ended{epoll_.get(), POLLIN, 0};
    ::poll(&ended, 1, static_cast<int>(std::min<int64_t>(left.count(), 20)));
  }
  return true;
}

}  // namespace attention::server
