#ifndef ATTENTION_SERVER_SCHEDULING_ADMISSION_H_
#define ATTENTION_SERVER_SCHEDULING_ADMISSION_H_

#include <atomic>
#include <cstdint>

#include "absl/status/statusor.h"
#include "server/callers/caller.h"
#include "server/scheduling/ledger.h"
#include "server/telemetry/refusal.h"

namespace attention::server {

/// Bounds what the server holds: requests queued or running, and the bytes of
/// those and of their replies. One caller holds half of either at most, so that
/// others are served beside one that sends too much or takes no replies; where
/// callers are connections, those of one address three quarters. May be used
/// from several threads at once and must outlive its tickets.
class Admission {
 public:
  using Clock = Ledger::Clock;
  /// Who holds something: a caller by its name, or a connection of an address.
  using Holder = Ledger::Holder;
  /// A request's place, given back when it is destroyed.
  using Ticket = Ledger::Hold;

  /// Both at least 1. What is admitted is counted in the ledger, as kRequests.
  Admission(Ledger& ledger, int64_t max_requests, int64_t max_bytes)
      : ledger_(ledger), max_requests_(max_requests), max_bytes_(max_bytes) {}

  /// A place for a request of `holder` that, with its reply, holds `bytes`
  /// >= 0. RESOURCE_EXHAUSTED names the limit that is reached, with a time
  /// after which to try again unless the request can never be admitted;
  /// UNAVAILABLE once draining. A caller's only request may be larger than its
  /// share.
  ///
  /// `limits` are the caller's own, in place of half of what there is; with
  /// quotas of a second, which are used up by what is admitted at `now`, and
  /// are of the address where there is one. `refusal` is set to why, unless it
  /// is null.
  absl::StatusOr<Ticket> Admit(const Holder& holder, int64_t bytes,
                               const CallerLimits& limits = {},
                               Refusal* refusal = nullptr,
                               Clock::time_point now = Clock::now());

  /// Has a request that was admitted with these limits hold `bytes` >= 0 more:
  /// all of it, or nothing more where that fails, as Admit() does. It does not
  /// wait for a quota: its caller owes that, and what comes next waits.
  absl::Status Grow(Ticket& ticket, int64_t bytes,
                    const CallerLimits& limits = {}, Refusal* refusal = nullptr,
                    Clock::time_point now = Clock::now());

  /// From now on nothing is admitted, and what is may grow.
  void StartDraining() { draining_ = true; }

  bool draining() const { return draining_; }
  int64_t requests() const { return ledger_.Of(Kept::kRequests).holds; }
  int64_t bytes() const { return ledger_.Of(Kept::kRequests).amount; }

 private:
  // What may be held of something.
  struct Most {
    const char* whose;
    int64_t requests;
    int64_t bytes;
    // What the limits are called, and what goes beyond them is refused for.
    const char* requests_limit;
    const char* bytes_limit;
    Refusal of_requests;
    Refusal of_bytes;
  };
  // What is asked for.
  struct Wanted {
    int64_t requests;
    int64_t bytes;  // of the quota
    int64_t whole;  // bytes that the request then holds
  };

  Most MostOfAll() const;
  Most MostOfCaller(const CallerLimits& limits) const;
  Most MostOfAddress() const;

  // The ledger is locked for these.
  static absl::Status CheckRoom(const Ledger::Account& held, const Most& most,
                                int64_t bytes, Refusal& refusal);
  absl::Status CheckRooms(const Ledger::Account& all, Ledger::Account& own,
                          int64_t bytes, const CallerLimits& limits,
                          Refusal& refusal) const;
  static absl::Status TakeFromQuotas(Ledger::Account& own, const Wanted& wanted,
                                     const CallerLimits& limits,
                                     Clock::time_point now);
  absl::Status Check(const Ledger::Account& all, Ledger::Account& own,
                     const Wanted& wanted, const CallerLimits& limits,
                     Refusal* refusal, Clock::time_point now) const;

  Ledger& ledger_;
  const int64_t max_requests_;
  const int64_t max_bytes_;
  std::atomic<bool> draining_{false};
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_ADMISSION_H_
