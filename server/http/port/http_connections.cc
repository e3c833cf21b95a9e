#include "server/http/port/http_connections.h"

#include <utility>

namespace attention::server {
namespace {

// One less of `key`, which is there.
void Decrement(std::unordered_map<std::string, int64_t>& counts,
               const std::string& key) {
  const auto found = counts.find(key);
  if (--found->second == 0) counts.erase(found);
}

}  // namespace

HttpConnections::Place::~Place() {
  const std::lock_guard lock(all_.mutex_);
  all_.LeaveIdle(*this);
  if (counted_) {
    all_.Uncount(*this);
  } else {
    Decrement(all_.closing_of_address_, address_);
  }
}

void HttpConnections::Place::SetIdle(std::function<void()> close) {
  const std::lock_guard lock(all_.mutex_);
  if (!counted_) return;  // it is being closed
  all_.LeaveIdle(*this);
  idle_ = true;
  close_ = std::move(close);
  in_idle_ = all_.idle_.insert(all_.idle_.end(), this);
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

void HttpConnections::Uncount(Place& place) {
  place.counted_ = false;
  if (place.reserved_) {
    --reserved_;
    return;
  }
  --open_;
  Decrement(of_address_, place.address_);
}

void HttpConnections::Displace(Place& place) {
  ++closing_of_address_[place.address_];
  LeaveIdle(place);
  Uncount(place);
  ++displaced_;
}

int64_t HttpConnections::ClosingOf(const std::string& address) const {
  const auto same = closing_of_address_.find(address);
  return same == closing_of_address_.end() ? 0 : same->second;
}

bool HttpConnections::FullFor(const std::string& address) const {
  const auto same = of_address_.find(address);
  return same != of_address_.end() && same->second >= limits_.per_peer;
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

std::unique_ptr<HttpConnections::Place> HttpConnections::Take(
    const std::string& address) {
  std::function<void()> close;  // called without the lock
  std::unique_ptr<Place> place;
  {
    const std::lock_guard lock(mutex_);
    const auto displace = [&](Place* idle) {
      if (idle == nullptr) return false;
      close = std::move(idle->close_);
      Displace(*idle);
      return true;
    };
    const bool full = FullFor(address);
    const bool may = ClosingOf(address) < kMostClosing;
    if (may &&
        ((!full && open_ < limits_.total) ||
         displace(LongestIdle(full ? address : "", /*reserved=*/false)))) {
      ++open_;
      ++of_address_[address];
      place = std::make_unique<Place>(*this, address, /*reserved=*/false);
    } else if (may && (reserved_ < most_reserved_ ||
                       displace(LongestIdle("", /*reserved=*/true)))) {
      ++reserved_;
      place = std::make_unique<Place>(*this, address, /*reserved=*/true);
    } else {
      ++refused_;
    }
  }
  if (close != nullptr) close();
  return place;
}

int64_t HttpConnections::open() const {
  const std::lock_guard lock(mutex_);
  return open_ + reserved_;
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
