#ifndef ATTENTION_SERVER_SCHEDULING_ADMISSION_H_
#define ATTENTION_SERVER_SCHEDULING_ADMISSION_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "server/base/token_bucket.h"
#include "server/callers/caller.h"
#include "server/telemetry/refusal.h"

namespace attention::server {

/// Bounds what the server holds: requests queued or running, and the bytes of
/// those and of their replies. One caller holds half of either at most, so that
/// others are served beside one that sends too much or takes no replies; where
/// callers are connections, those of one address three quarters. May be used
/// from several threads at once and must outlive its tickets.
class Admission {
  using Clock = TokenBucket::Clock;
  struct Held {
    int64_t requests = 0;
    int64_t bytes = 0;
    TokenBucket requests_quota = {};  // of a second
    TokenBucket bytes_quota = {};
    Held* address = nullptr;  // of a connection; it stays as long
    int64_t connections = 0;  // of an address
  };

 public:
  /// Who holds something: a caller by its name, or a connection of an address.
  struct Holder {
    std::string name;
    std::string address = {};  // "": none
  };

  /// A request's place, given back when it is destroyed.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept;
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { Return(); }
    /// False where it holds nothing.
    explicit operator bool() const { return admission_ != nullptr; }

   private:
    friend class Admission;
    Ticket(Admission* admission, Held* held, int64_t bytes)
        : admission_(admission), held_(held), bytes_(bytes) {}
    void Return();

    Admission* admission_ = nullptr;
    Held* held_ = nullptr;  // by its caller
    int64_t bytes_ = 0;
  };

  /// Both at least 1.
  Admission(int64_t max_requests, int64_t max_bytes)
      : max_requests_(max_requests), max_bytes_(max_bytes) {}

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
  /// all of it, or nothing more where that fails, as Admit() does.
  absl::Status Grow(Ticket& ticket, int64_t bytes,
                    const CallerLimits& limits = {}, Refusal* refusal = nullptr,
                    Clock::time_point now = Clock::now());

  /// From now on nothing is admitted, and what is may grow.
  void StartDraining();

  bool draining() const;
  int64_t requests() const;
  int64_t bytes() const;

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

  Most MostOfAll() const;
  Most MostOfCaller(const CallerLimits& limits) const;
  Most MostOfAddress() const;

  // mutex_ is held for all.
  Held& Find(const Holder& holder);
  void Add(Held& caller, int64_t requests, int64_t bytes);
  static absl::Status CheckRoom(const Held& held, const Most& most,
                                int64_t bytes, Refusal& refusal);
  absl::Status Check(const Held& caller, int64_t bytes,
                     const CallerLimits& limits, Refusal& refusal) const;
  static absl::Status TakeFromQuotas(Held& caller, int64_t requests,
                                     int64_t bytes, const CallerLimits& limits,
                                     Clock::time_point now);
  void ForgetIdleCallers(Clock::time_point now);

  const int64_t max_requests_;
  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  bool draining_ = false;
  Held all_;
  // Nodes stay where they are.
  std::unordered_map<std::string, Held> callers_;
  std::unordered_map<std::string, Held> addresses_;
  Clock::time_point next_sweep_{};
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_ADMISSION_H_
