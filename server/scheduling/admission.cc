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

absl::StatusOr<Admission::Ticket> Admission::Admit(const std::string& caller,
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
  Held& held = callers_[caller];
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

void Admission::Add(Held& caller, int64_t requests, int64_t bytes) {
  for (Held* each : {&all_, &caller}) {
    each->requests += requests;
    each->bytes += bytes;
  }
}

absl::Status Admission::Check(const Held& caller, int64_t bytes,
                              const CallerLimits& limits,
                              Refusal& refusal) const {
  if (bytes > max_bytes_) {
    refusal = Refusal::kTooLarge;
    return absl::ResourceExhaustedError(absl::StrCat(
        "the request needs ", bytes,
        " bytes with its working memory and reply, and never fits (at most ",
        max_bytes_, ", half of memory_limit)"));
  }
  std::string full;
  const bool own_requests = limits.max_requests_in_flight > 0;
  const bool own_bytes = limits.max_bytes_in_flight > 0;
  const int64_t most_requests = own_requests
                                    ? limits.max_requests_in_flight
                                    : std::max<int64_t>(max_requests_ / 2, 1);
  const int64_t most_bytes =
      own_bytes ? limits.max_bytes_in_flight : max_bytes_ / 2;
  if (own_bytes && bytes > most_bytes) {
    refusal = Refusal::kTooLarge;
    return absl::ResourceExhaustedError(absl::StrCat(
        "the request needs ", bytes,
        " bytes with its working memory and reply, and never fits (at most ",
        most_bytes, ", max_bytes_in_flight of this caller)"));
  }
  if (all_.requests >= max_requests_) {
    refusal = Refusal::kServerRequests;
    full = absl::StrCat("the server is full: ", all_.requests,
                        " requests in flight (at most ", max_requests_,
                        ", max_requests_in_flight)");
  } else if (bytes > max_bytes_ - all_.bytes) {
    refusal = Refusal::kServerMemory;
    full = absl::StrCat("the server is full: the request needs ", bytes,
                        " bytes, those in flight hold ", all_.bytes,
                        " (at most ", max_bytes_, ", half of memory_limit)");
  } else if (caller.requests >= most_requests) {
    refusal = Refusal::kCallerRequests;
    full =
        absl::StrCat("the caller's share is full: ", caller.requests,
                     " requests of it are in flight (at most ", most_requests,
                     own_requests ? ", its max_requests_in_flight)"
                                  : ", half of max_requests_in_flight)");
  } else if (caller.requests > 0 && bytes > most_bytes - caller.bytes) {
    refusal = Refusal::kCallerMemory;
    full = absl::StrCat("the caller's share is full: the request needs ", bytes,
                        " bytes, those of it in flight hold ", caller.bytes,
                        " (at most ", most_bytes,
                        own_bytes ? ", its max_bytes_in_flight)"
                                  : ", a quarter of memory_limit)");
  }
  if (full.empty()) return absl::OkStatus();
  return RetryAfter(absl::ResourceExhaustedError(full), kTryAgain);
}

absl::Status Admission::TakeFromQuotas(Held& caller, int64_t requests,
                                       int64_t bytes,
                                       const CallerLimits& limits,
                                       Clock::time_point now) {
  struct Use {
    TokenBucket& quota;
    int64_t amount;
    int64_t rate;
    const char* limit;
  };
  const Use uses[] = {
      {caller.requests_quota, requests, limits.max_requests_per_second,
       " requests a second (max_requests_per_second)"},
      {caller.bytes_quota, bytes, limits.max_bytes_per_second,
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
  if (callers_.size() <=
      kMostIdleCallers + static_cast<size_t>(all_.requests)) {
    return;
  }
  for (auto caller = callers_.begin(); caller != callers_.end();) {
    const Held& held = caller->second;
    const bool idle = held.requests == 0 && held.requests_quota.IsFull(now) &&
                      held.bytes_quota.IsFull(now);
    caller = idle ? callers_.erase(caller) : std::next(caller);
  }
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
