#include "server/scheduling/admission.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/scheduling/retry_after.h"

namespace attention::server {
namespace {

// Callers that hold nothing are kept up to this many: the next call of one of
// them finds its entry.
constexpr size_t kMostIdleCallers = 1024;
// Between two looks at all of them.
constexpr std::chrono::seconds kSweepPause{1};

// A second's worth at once.
TokenBucket::Limit OfASecond(int64_t rate) {
  return {static_cast<double>(rate), static_cast<double>(rate)};
}

}  // namespace

Admission::Ticket::Ticket(Ticket&& other) noexcept
    : admission_(std::exchange(other.admission_, nullptr)),
      held_(other.held_),
      bytes_(other.bytes_) {}

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  if (this != &other) {
    Return();
    admission_ = std::exchange(other.admission_, nullptr);
    held_ = other.held_;
    bytes_ = other.bytes_;
  }
  return *this;
}

void Admission::Ticket::Return() {
  if (admission_ == nullptr) return;
  const std::lock_guard lock(admission_->mutex_);
  admission_->Add(*held_, -1, -bytes_);
}

absl::StatusOr<Admission::Ticket> Admission::Admit(const Holder& holder,
                                                   int64_t bytes,
                                                   const CallerLimits& limits,
                                                   Refusal* refusal,
                                                   Clock::time_point now) {
  Refusal unused = Refusal::kNone;
  Refusal& why = refusal != nullptr ? *refusal : unused;
  const std::lock_guard lock(mutex_);
  if (draining_) {
    why = Refusal::kDraining;
    return absl::UnavailableError("the server is draining");
  }
  ForgetIdleCallers(now);
  Held& held = Find(holder);
  if (absl::Status full = Check(held, bytes, limits, why); !full.ok()) {
    return full;
  }
  if (limits.max_requests_per_second > 0 || limits.max_bytes_per_second > 0) {
    absl::Status spent = TakeFromQuotas(held, 1, bytes, limits, now);
    if (!spent.ok()) {
      why = Refusal::kCallerRate;
      return spent;
    }
  }
  Add(held, 1, bytes);
  return Ticket(this, &held, bytes);
}

absl::Status Admission::Grow(Ticket& ticket, int64_t bytes,
                             const CallerLimits& limits, Refusal* refusal,
                             Clock::time_point now) {
  Refusal unused = Refusal::kNone;
  Refusal& why = refusal != nullptr ? *refusal : unused;
  const std::lock_guard lock(mutex_);
  Held& held = *ticket.held_;
  // As if it came now, as large as it has become.
  Add(held, -1, -ticket.bytes_);
  absl::Status status = Check(held, ticket.bytes_ + bytes, limits, why);
  if (status.ok() && limits.max_bytes_per_second > 0) {
    status = TakeFromQuotas(held, 0, bytes, limits, now);
    if (!status.ok()) why = Refusal::kCallerRate;
  }
  if (status.ok()) ticket.bytes_ += bytes;
  Add(held, 1, ticket.bytes_);
  return status;
}

Admission::Held& Admission::Find(const Holder& holder) {
  const auto [found, is_new] = callers_.try_emplace(holder.name);
  Held& held = found->second;
  if (is_new && !holder.address.empty()) {
    held.address = &addresses_[holder.address];
    ++held.address->connections;
  }
  return held;
}

void Admission::Add(Held& caller, int64_t requests, int64_t bytes) {
  for (Held* each : {&all_, &caller, caller.address}) {
    if (each == nullptr) continue;
    each->requests += requests;
    each->bytes += bytes;
  }
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

absl::Status Admission::CheckRoom(const Held& held, const Most& most,
                                  int64_t bytes, Refusal& refusal) {
  std::string full;
  if (held.requests >= most.requests) {
    refusal = most.of_requests;
    full =
        absl::StrCat(held.requests, " requests of it are in flight (at most ",
                     most.requests, ", ", most.requests_limit, ")");
  } else if (held.requests > 0 && bytes > most.bytes - held.bytes) {
    refusal = most.of_bytes;
    full = absl::StrCat("the request needs ", bytes,
                        " bytes, those in flight hold ", held.bytes,
                        " (at most ", most.bytes, ", ", most.bytes_limit, ")");
  }
  if (full.empty()) return absl::OkStatus();
  return RetryAfter(absl::ResourceExhaustedError(
                        absl::StrCat(most.whose, " is full: ", full)),
                    kTryAgain);
}

absl::Status Admission::Check(const Held& caller, int64_t bytes,
                              const CallerLimits& limits,
                              Refusal& refusal) const {
  const Most of_all = MostOfAll();
  const Most of_caller = MostOfCaller(limits);
  // A caller's only request may be larger than its share, and not than a limit
  // that it was given.
  const bool own =
      limits.max_bytes_in_flight > 0 && of_caller.bytes < of_all.bytes;
  const int64_t largest = own ? of_caller.bytes : of_all.bytes;
  if (bytes > largest) {
    refusal = Refusal::kTooLarge;
    return absl::ResourceExhaustedError(absl::StrCat(
        "the request needs ", bytes,
        " bytes with its working memory and reply, and never fits (at most ",
        largest, ", ",
        own ? "max_bytes_in_flight of this caller" : of_all.bytes_limit, ")"));
  }
  absl::Status room = CheckRoom(all_, of_all, bytes, refusal);
  if (room.ok()) room = CheckRoom(caller, of_caller, bytes, refusal);
  if (room.ok() && caller.address != nullptr) {
    room = CheckRoom(*caller.address, MostOfAddress(), bytes, refusal);
  }
  return room;
}

absl::Status Admission::TakeFromQuotas(Held& caller, int64_t requests,
                                       int64_t bytes,
                                       const CallerLimits& limits,
                                       Clock::time_point now) {
  Held& payer = caller.address != nullptr ? *caller.address : caller;
  struct Use {
    TokenBucket& quota;
    int64_t amount;
    int64_t rate;
    const char* limit;
  };
  const Use uses[] = {
      {payer.requests_quota, requests, limits.max_requests_per_second,
       " requests a second (max_requests_per_second)"},
      {payer.bytes_quota, bytes, limits.max_bytes_per_second,
       " bytes a second (max_bytes_per_second)"}};
  for (const auto& [quota, amount, rate, limit] : uses) {
    if (rate == 0 || amount == 0) continue;
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

void Admission::ForgetIdleCallers(Clock::time_point now) {
  const size_t known = callers_.size() + addresses_.size();
  if (now < next_sweep_ ||
      known <= kMostIdleCallers + static_cast<size_t>(all_.requests)) {
    return;
  }
  next_sweep_ = now + kSweepPause;
  const auto idle = [now](const Held& held) {
    return held.requests == 0 && held.connections == 0 &&
           held.requests_quota.IsFull(now) && held.bytes_quota.IsFull(now);
  };
  std::erase_if(callers_, [&idle](const auto& each) {
    const Held& held = each.second;
    if (!idle(held)) return false;
    if (held.address != nullptr) --held.address->connections;
    return true;
  });
  std::erase_if(addresses_,
                [&idle](const auto& each) { return idle(each.second); });
}

void Admission::StartDraining() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

bool Admission::draining() const {
  const std::lock_guard lock(mutex_);
  return draining_;
}

int64_t Admission::requests() const {
  const std::lock_guard lock(mutex_);
  return all_.requests;
}

int64_t Admission::bytes() const {
  const std::lock_guard lock(mutex_);
  return all_.bytes;
}

}  // namespace attention::server
