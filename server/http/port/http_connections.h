#ifndef ATTENTION_SERVER_HTTP_PORT_HTTP_CONNECTIONS_H_
#define ATTENTION_SERVER_HTTP_PORT_HTTP_CONNECTIONS_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "server/scheduling/ledger.h"
#include "server/transport/connection_limits.h"

namespace attention::server {

/// Counts connections. Where there is one too many, the one that has been idle
/// for longest is closed for it: of its address, where that has its share;
/// else of all. Where none is idle, some places are left for probes, which are
/// told from others once their request has come. What was closed for others
/// may keep its socket for a moment: an address with kMostClosing such gets no
/// place until some of them have gone.
///
/// While the server drains, those that are busy can be waited for, and go once
/// they have their replies.
///
/// Those that are open and those that are closing are counted in a ledger. May
/// be used from several threads at once, and must outlive its places.
class HttpConnections {
 public:
  static constexpr int64_t kMostClosing = 64;

  /// One connection's, given back when it is destroyed, which its socket must
  /// not outlive.
  class Place {
   public:
    Place(HttpConnections& all, std::string address, bool reserved,
          Ledger::Hold hold)
        : all_(all),
          address_(std::move(address)),
          reserved_(reserved),
          hold_(std::move(hold)) {
      ++all_.places_;
    }
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    /// Whether it is one of those that are left for probes.
    bool reserved() const { return reserved_; }

    /// Whether its connection may wait for another request: a reserved place is
    /// left for the next one, and none stays while the server drains.
    bool MayStay() const { return !reserved_ && !all_.draining_; }

    /// From now on no request is under way: `close` may be called once, from
    /// the thread that takes another place, and has to close the connection.
    void SetIdle(std::function<void()> close);
    void SetBusy();

   private:
    friend class HttpConnections;

    HttpConnections& all_;
    const std::string address_;
    const bool reserved_;
    // With the mutex of all_:
    Ledger::Hold hold_;
    bool closing_ = false;  // for another one
    bool idle_ = false;
    std::function<void()> close_;
    std::list<Place*>::iterator in_idle_;
  };

  /// `reserved` places besides those of the limits. The ledger outlives it.
  HttpConnections(Ledger& ledger, const ConnectionLimits& limits,
                  int64_t reserved)
      : ledger_(ledger), limits_(limits), most_reserved_(reserved) {}

  /// A place for a connection from `address`; null where there is none.
  std::unique_ptr<Place> Take(const std::string& address);

  /// From now on no place may stay.
  void StartDraining() { draining_ = true; }
  /// True as soon as none is busy or none is left, false where some are at
  /// `deadline`. Those that were closed for others do not count.
  bool WaitUntilIdle(std::chrono::steady_clock::time_point deadline);
  bool WaitUntilNone(std::chrono::steady_clock::time_point deadline);

  int64_t open() const;
  /// Since the start: for which there was no place, and which made room.
  int64_t refused() const;
  int64_t displaced() const;

 private:
  // A hold for one more, in a reserved place or not; none where there is no
  // room. `of_address`: because its address has its share.
  Ledger::Hold TryTake(const std::string& address, bool reserved,
                       bool& of_address);
  // mutex_ is held for these. Of `address`, "" for any, in a reserved place or
  // not; null where none is idle.
  Place* LongestIdle(const std::string& address, bool reserved) const;
  void LeaveIdle(Place& place);
  // What closes it.
  std::function<void()> Displace(Place& place);
  std::unique_ptr<Place> Take(const std::string& address,
                              std::function<void()>& close);

  Ledger& ledger_;
  const ConnectionLimits limits_;
  const int64_t most_reserved_;
  std::atomic<bool> draining_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  size_t places_ = 0;  // but for those that are closed for others
  int64_t refused_ = 0;
  int64_t displaced_ = 0;
  std::list<Place*> idle_;  // the longest first
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_HTTP_CONNECTIONS_H_
