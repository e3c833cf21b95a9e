#include "server/http/http_connections.h"

namespace attention::server {

HttpConnections::Place::~Place() {
  const std::lock_guard lock(all_.mutex_);
  --all_.open_;
  const auto same = all_.of_address_.find(address_);
  if (--same->second == 0) all_.of_address_.erase(same);
}

std::unique_ptr<HttpConnections::Place> HttpConnections::Take(
    const std::string& address) {
  const std::lock_guard lock(mutex_);
  const auto same = of_address_.find(address);
  const int64_t of_address = same == of_address_.end() ? 0 : same->second;
  if (open_ >= limits_.total || of_address >= limits_.per_peer) {
    ++refused_;
    return nullptr;
  }
  ++open_;
  ++of_address_[address];
  return std::make_unique<Place>(*this, address);
}

int64_t HttpConnections::open() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

int64_t HttpConnections::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

}  // namespace attention::server
