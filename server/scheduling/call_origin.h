#ifndef ATTENTION_SERVER_SCHEDULING_CALL_ORIGIN_H_
#define ATTENTION_SERVER_SCHEDULING_CALL_ORIGIN_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "server/callers/caller.h"
#include "server/scheduling/admission.h"
#include "server/scheduling/fair_queue.h"

namespace attention::server {

/// Why a request is stopped before it is done.
enum class StopReason : uint8_t {
  kNone,
  kCancelled,
  kDeadline,
  kDraining,
  kTooLong  // beyond max_compute_time
};

/// Who takes a turn, or a place: the caller by its name, or without one (null)
/// the address of the connection's other end, as CallOrigin::peer has it.
std::string PartyOf(const Caller* caller, const std::string& peer);

/// Who makes a call, and until when.
struct CallOrigin {
  using Clock = std::chrono::system_clock;

  /// The other end of its connection, as grpc::ServerContext::peer() says it:
  /// "ipv4:127.0.0.1:50000". A cancelled call has forgotten it.
  std::string peer = {};
  /// Whose shares it takes; null where its address and its connection do.
  std::shared_ptr<const Caller> caller = nullptr;
  Clock::time_point deadline = Clock::time_point::max();
  std::string trace_parent = {};  // W3C's; empty where the caller has none
  Clock::time_point begin = Clock::now();

  /// Who holds what its requests take: the caller, or its connection.
  Admission::Holder holder() const;

  /// Whose turns: PartyOf(), and its connection's.
  FairQueue::Path path() const;

  /// Why a call that its transport says is cancelled was: its deadline, or its
  /// caller.
  StopReason WhyCancelled() const {
    return Clock::now() >= deadline ? StopReason::kDeadline
                                    : StopReason::kCancelled;
  }

  /// Whether its caller reset it well before its deadline. A library that gives
  /// up at the deadline resets the call as well, at nearly the same time.
  bool WasReset() const {
    if (deadline == Clock::time_point::max()) return true;
    const std::chrono::duration<double> lived = Clock::now() - begin;
    const std::chrono::duration<double> whole = deadline - begin;
    return lived < 0.9 * whole;
  }
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_CALL_ORIGIN_H_
