#include "server/http/port/http_connections.h"

namespace attention::server {

HttpConnections::Place::~Place() {
  const std::lock_guard lock(all_.mutex_);
  all_.LeaveIdle(*this);
  if (closing_) return;
  --all_.places_;
  all_.changed_.notify_all();
}

void HttpConnections::Place::SetIdle(std::function<void()> close) {
  const std::lock_guard lock(all_.mutex_);
  if (closing_) return;
  all_.LeaveIdle(*this);
  idle_ = true;
  close_ = std::move(close);
  in_idle_ = all_.idle_.insert(all_.idle_.end(), this);
  all_.changed_.notify_all();
}

void HttpConnections::Place::SetBusy() {
  const std::lock_guard lock(all_.mutex_);
  all_.LeaveIdle(*this);
}

void HttpConnections::LeaveIdle(Place& place) {
  if (!std::exchange(place.idle_, false)) return;
  idle_.erase(place.in_idle_);
  place.close_ = nullptr;
}

HttpConnections::Place* HttpConnections::LongestIdle(const std::string& address,
                                                     bool reserved) const {
  for (Place* const place : idle_) {
    if (place->reserved_ == reserved &&
        (address.empty() || place->address_ == address)) {
      return place;
    }
  }
  return nullptr;
}

std::function<void()> HttpConnections::Displace(Place& place) {
  std::function<void()> close = std::move(place.close_);
  LeaveIdle(place);
  place.closing_ = true;
  --places_;
  place.hold_ =
      ledger_.Take(Kept::kClosingConnections, {.address = place.address_});
  ++displaced_;
  return close;
}

Ledger::Hold HttpConnections::TryTake(const std::string& address, bool reserved,
                                      bool& of_address) {
  const Kept kind =
      reserved ? Kept::kReservedConnections : Kept::kHttpConnections;
  const int64_t most = reserved ? most_reserved_ : limits_.total;
  return ledger_.Take(
      kind, {.address = address}, 0,
      [&](const Ledger::Account& all, const Ledger::Account& own) {
        of_address = !reserved && own.of(kind).holds >= limits_.per_peer;
        return !of_address && all.of(kind).holds < most;
      });
}

std::unique_ptr<HttpConnections::Place> HttpConnections::Take(
    const std::string& address, std::function<void()>& close) {
  if (ledger_.Of(Kept::kClosingConnections, address).holds >= kMostClosing) {
    return nullptr;
  }
  for (const bool reserved : {false, true}) {
    bool of_address = false;
    Ledger::Hold hold = TryTake(address, reserved, of_address);
    if (!hold) {
      Place* const idle = LongestIdle(of_address ? address : "", reserved);
      if (idle == nullptr) continue;
      close = Displace(*idle);
      hold = TryTake(address, reserved, of_address);
    }
    return std::make_unique<Place>(*this, address, reserved, std::move(hold));
  }
  return nullptr;
}

std::unique_ptr<HttpConnections::Place> HttpConnections::Take(
    const std::string& address) {
  std::function<void()> close;  // called without the lock
  std::unique_ptr<Place> place;
  {
    const std::lock_guard lock(mutex_);
    place = Take(address, close);
    if (place == nullptr) ++refused_;
  }
  if (close != nullptr) close();
  return place;
}

bool HttpConnections::WaitUntilIdle(
    std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline,
                             [this] { return idle_.size() == places_; });
}

bool HttpConnections::WaitUntilNone(
    std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return places_ == 0; });
}

int64_t HttpConnections::open() const {
  return ledger_.Of(Kept::kHttpConnections).holds +
         ledger_.Of(Kept::kReservedConnections).holds;
}

int64_t HttpConnections::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

int64_t HttpConnections::displaced() const {
  const std::lock_guard lock(mutex_);
  return displaced_;
}

}  // namespace attention::server
