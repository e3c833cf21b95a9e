#include "server/scheduling/admission.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/scheduling/retry_after.h"

namespace attention::server {
namespace {

// A second's worth at once.
TokenBucket::Limit OfASecond(int64_t rate) {
  return {static_cast<double>(rate), static_cast<double>(rate)};
}

}  // namespace

absl::StatusOr<Admission::Ticket> Admission::Admit(const Holder& holder,
                                                   int64_t bytes,
                                                   const CallerLimits& limits,
                                                   Refusal* refusal,
                                                   Clock::time_point now) {
  if (draining_) {
    if (refusal != nullptr) *refusal = Refusal::kDraining;
    return absl::UnavailableError("the server is draining");
  }
  absl::Status status;
  Ticket ticket = ledger_.Take(
      Kept::kRequests, holder, bytes,
      [&](const Ledger::Account& all, Ledger::Account& own) {
        status = Check(all, own, {1, bytes, bytes}, limits, refusal, now);
        return status.ok();
      },
      now);
  if (!status.ok()) return status;
  return ticket;
}

absl::Status Admission::Grow(Ticket& ticket, int64_t bytes,
                             const CallerLimits& limits, Refusal* refusal,
                             Clock::time_point now) {
  absl::Status status;
  const int64_t whole = ticket.amount() + bytes;
  ledger_.Resize(
      ticket, whole, [&](const Ledger::Account& all, Ledger::Account& own) {
        status = Check(all, own, {0, bytes, whole}, limits, refusal, now);
        return status.ok();
      });
  return status;
}

Admission::Most Admission::MostOfAll() const {
  return {"the server",
          max_requests_,
          max_bytes_,
          "max_requests_in_flight",
          "half of memory_limit",
          Refusal::kServerRequests,
          Refusal::kServerMemory};
}

Admission::Most Admission::MostOfCaller(const CallerLimits& limits) const {
  Most most = {"the caller's share",
               std::max<int64_t>(max_requests_ / 2, 1),
               max_bytes_ / 2,
               "half of max_requests_in_flight",
               "a quarter of memory_limit",
               Refusal::kCallerRequests,
               Refusal::kCallerMemory};
  if (limits.max_requests_in_flight > 0) {
    most.requests = limits.max_requests_in_flight;
    most.requests_limit = "its max_requests_in_flight";
  }
  if (limits.max_bytes_in_flight > 0) {
    most.bytes = limits.max_bytes_in_flight;
    most.bytes_limit = "its max_bytes_in_flight";
  }
  return most;
}

Admission::Most Admission::MostOfAddress() const {
  return {"the share of the caller's address",
          max_requests_ - max_requests_ / 4,
          max_bytes_ - max_bytes_ / 4,
          "three quarters of max_requests_in_flight",
          "three eighths of memory_limit",
          Refusal::kCallerRequests,
          Refusal::kCallerMemory};
}

absl::Status Admission::CheckRoom(const Ledger::Account& account,
                                  const Most& most, int64_t bytes,
                                  Refusal& refusal) {
  const Ledger::Sum& held = account.of(Kept::kRequests);
  std::string full;
  if (held.holds >= most.requests) {
    refusal = most.of_requests;
    full = absl::StrCat(held.holds, " requests of it are in flight (at most ",
                        most.requests, ", ", most.requests_limit, ")");
  } else if (held.holds > 0 && bytes > most.bytes - held.amount) {
    refusal = most.of_bytes;
    full = absl::StrCat("the request needs ", bytes,
                        " bytes, those in flight hold ", held.amount,
                        " (at most ", most.bytes, ", ", most.bytes_limit, ")");
  }
  if (full.empty()) return absl::OkStatus();
  return RetryAfter(absl::ResourceExhaustedError(
                        absl::StrCat(most.whose, " is full: ", full)),
                    kTryAgain);
}

absl::Status Admission::CheckRooms(const Ledger::Account& all,
                                   Ledger::Account& own, int64_t bytes,
                                   const CallerLimits& limits,
                                   Refusal& refusal) const {
  const Most of_all = MostOfAll();
  const Most of_caller = MostOfCaller(limits);
  // A caller's only request may be larger than its share, and not than a limit
  // that it was given.
  const bool given =
      limits.max_bytes_in_flight > 0 && of_caller.bytes < of_all.bytes;
  const int64_t largest = given ? of_caller.bytes : of_all.bytes;
  if (bytes > largest) {
    refusal = Refusal::kTooLarge;
    return absl::ResourceExhaustedError(absl::StrCat(
        "the request needs ", bytes,
        " bytes with its working memory and reply, and never fits (at most ",
        largest, ", ",
        given ? "max_bytes_in_flight of this caller" : of_all.bytes_limit,
        ")"));
  }
  absl::Status room = CheckRoom(all, of_all, bytes, refusal);
  if (room.ok()) room = CheckRoom(own, of_caller, bytes, refusal);
  if (room.ok() && own.address() != nullptr) {
    room = CheckRoom(*own.address(), MostOfAddress(), bytes, refusal);
  }
  return room;
}

absl::Status Admission::TakeFromQuotas(Ledger::Account& own,
                                       const Wanted& wanted,
                                       const CallerLimits& limits,
                                       Clock::time_point now) {
  Ledger::Account& payer = own.address() != nullptr ? *own.address() : own;
  struct Use {
    TokenBucket& quota;
    int64_t amount;
    int64_t rate;
    const char* limit;
  };
  const Use uses[] = {
      {payer.requests_quota, wanted.requests, limits.max_requests_per_second,
       " requests a second (max_requests_per_second)"},
      {payer.bytes_quota, wanted.bytes, limits.max_bytes_per_second,
       " bytes a second (max_bytes_per_second)"}};
  // What was let in owes what it grows by. Refused, it would come again, pay
  // for its message again, and might never have enough for the rest.
  const bool grows = wanted.requests == 0;
  for (const auto& [quota, amount, rate, limit] : uses) {
    if (grows || rate == 0 || amount == 0) continue;
    const std::chrono::nanoseconds wait =
        quota.Wait(static_cast<double>(amount), OfASecond(rate), now);
    if (wait.count() == 0) continue;
    return RetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                          "the caller's quota is used up: ", rate, limit)),
                      wait);
  }
  for (const auto& [quota, amount, rate, limit] : uses) {
    if (rate == 0 || amount == 0) continue;
    quota.Take(static_cast<double>(amount), OfASecond(rate), now);
  }
  return absl::OkStatus();
}

absl::Status Admission::Check(const Ledger::Account& all, Ledger::Account& own,
                              const Wanted& wanted, const CallerLimits& limits,
                              Refusal* refusal, Clock::time_point now) const {
  Refusal why = Refusal::kNone;
  absl::Status status = CheckRooms(all, own, wanted.whole, limits, why);
  if (status.ok()) {
    status = TakeFromQuotas(own, wanted, limits, now);
    if (!status.ok()) why = Refusal::kCallerRate;
  }
  if (refusal != nullptr && !status.ok()) *refusal = why;
  return status;
}

}  // namespace attention::server
