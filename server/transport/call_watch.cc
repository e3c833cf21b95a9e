#include "server/transport/call_watch.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

using std::chrono::milliseconds;

// Between two looks at a connection.
constexpr milliseconds kPause{20};
// The same where it is silent, and has open calls, of which some may have
// ended, or is not yet at rest.
constexpr milliseconds kSilentPause{500};
// Between two lists of all connections, for one that is not in channelz' order.
constexpr milliseconds kListPause{100};
// In a row without anything new, after which a connection is silent, and after
// which it is at rest. On a machine with much to do gRPC may be seconds behind
// what it has received.
constexpr int kQuietLooks = 3;
constexpr int kLooksToRest = kQuietLooks + 20;
// Of a connection that is spared while others of its address are closed.
constexpr int64_t kFewCalls = 16;
// Of connections that have ended, before they are forgotten.
constexpr size_t kMostEnded = 256;

}  // namespace

CallWatch::CallWatch(channelz::Source source, int64_t per_connection,
                     const OpenCallLimits& limits, Connections& connections,
                     Ledger& ledger)
    : source_(std::move(source)),
      per_connection_(per_connection),
      limits_(limits),
      connections_(connections),
      ledger_(ledger),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

CallWatch::~CallWatch() {
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

void CallWatch::Run() {
  while (true) {
    milliseconds time = milliseconds::max();
    const bool all_rest =
        absl::c_all_of(watched_,
                       [](const auto& each) {
                         return each.second.quiet >= kLooksToRest;
                       }) &&
        ledger_.Of(Kept::kCalls).amount == 0;
    if (!all_rest) time = kSilentPause;
    if (!again_.empty() || missed_) time = milliseconds(0);
    if (!Wait(connections_.arrivals(), time)) return;
    try {
      Look();
    } catch (const std::exception& error) {
      // For want of memory, which others may give back: what is too much is
      // closed in the next round.
      missed_ = true;
      if (const int64_t times = failed_.Count(); times > 0) {
        spdlog::warn(absl::StrCat("cannot count open calls: ", error.what(),
                                  " (", times, " times)"));
      }
    }
    if (!Wait(/*epoll=*/-1, kPause)) return;
  }
}

bool CallWatch::Wait(int epoll, milliseconds time) const {
  std::array<pollfd, 2> watched{{{stop_.get(), POLLIN, 0}, {epoll, POLLIN, 0}}};
  const int patience =
      time == milliseconds::max() ? -1 : static_cast<int>(time.count());
  ::poll(watched.data(), watched.size(), patience);
  return watched[0].revents == 0;
}

void CallWatch::Look() {
  const bool missed = missed_;
  absl::flat_hash_set<Peer> due = std::exchange(again_, {});
  for (Peer& peer : connections_.TakeArrived()) due.insert(std::move(peer));
  const Clock::time_point silent = Clock::now() - kSilentPause;
  for (const auto& [peer, watched] : watched_) {
    const bool counts = watched.open.amount() > 0 || watched.seen == kNever ||
                        watched.quiet < kLooksToRest;
    if (missed || (counts && watched.seen < silent) || watched.closed) {
      due.insert(peer);
    }
  }
  FindSocketsAfter(missed ? 0 : newest_);
  absl::flat_hash_set<std::string> addresses;
  for (const Peer& peer : due) {
    LookAt(peer);
    addresses.insert(peer.address);
  }
  Enforce(addresses);
  ForgetEnded();
  missed_ = false;
}

void CallWatch::FindSocketsAfter(int64_t socket) {
  for (const channelz::Socket& each : source_.sockets(socket)) {
    newest_ = std::max(newest_, each.id);
    const std::optional<Peer> peer = PeerOfCall(each.peer);
    if (!peer) continue;
    // Of two with the same name, the newer one: the other has ended, and gRPC
    // has not freed it yet.
    const auto same = watched_.find(*peer);
    if (same != watched_.end() && same->second.socket >= each.id) continue;
    Watched watched = {
        .socket = each.id,
        .open = ledger_.Take(Kept::kCalls, {.address = peer->address})};
    watched_.insert_or_assign(*peer, std::move(watched));
  }
}

void CallWatch::FindSockets() {
  const Clock::time_point now = Clock::now();
  if (now - kListPause < found_all_) return;
  found_all_ = now;
  FindSocketsAfter(0);
}

void CallWatch::LookAt(const Peer& peer) {
  auto found = watched_.find(peer);
  if (found == watched_.end()) {
    FindSockets();
    found = watched_.find(peer);
  }
  if (found == watched_.end()) {
    if (connections_.Has(peer)) again_.insert(peer);
    return;
  }
  Watched& watched = found->second;
  const std::optional<channelz::Calls> now = source_.calls(watched.socket);
  if (!now) {
    watched_.erase(found);
    return;
  }
  ledger_.Resize(watched.open, now->open);
  // What came may still be on its way through gRPC.
  const bool moves =
      now->started != watched.started || connections_.HasUnread(peer);
  watched.quiet = moves ? 0 : watched.quiet + 1;
  if (watched.quiet < kQuietLooks) again_.insert(peer);
  watched.started = now->started;
  watched.seen = Clock::now();
  if (now->open > 2 * per_connection_) {
    Close(peer, watched, 2 * per_connection_, "it");
  }
}

void CallWatch::Enforce(const absl::flat_hash_set<std::string>& addresses) {
  for (const std::string& address : addresses) {
    if (ledger_.Of(Kept::kCalls, address).amount > limits_.per_address) {
      CloseThoseOf(address, limits_.per_address, "its address");
    }
  }
  if (ledger_.Of(Kept::kCalls).amount > limits_.total) {
    CloseThoseOf(ledger_.Largest(Kept::kCalls), limits_.total, "all");
  }
}

void CallWatch::CloseThoseOf(const std::string& address, int64_t most,
                             const char* of) {
  for (auto& [peer, watched] : watched_) {
    if (watched.closed || peer.address != address) continue;
    if (watched.open.amount() > kFewCalls || connections_.HasUnread(peer)) {
      Close(peer, watched, most, of);
    }
  }
}

void CallWatch::Close(const Peer& peer, Watched& watched, int64_t most,
                      const char* of) {
  if (watched.closed) return;
  watched.closed = true;
  connections_.Close(peer);
  ++closed_;
  if (const int64_t times = closed_to_tell_.Count(); times > 0) {
    spdlog::warn(absl::StrCat("closed ", times, " connections, the last of ",
                              peer.address, " with ", watched.open.amount(),
                              " open calls (expected at most ", most, " of ",
                              of, ")"));
  }
}

void CallWatch::ForgetEnded() {
  if (watched_.size() < connections_.Count() + kMostEnded) return;
  for (auto each = watched_.begin(); each != watched_.end();) {
    const auto now = each++;
    if (now->second.closed || connections_.Has(now->first)) continue;
    watched_.erase(now);
  }
}

}  // namespace attention::server
