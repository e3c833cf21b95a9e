#include "server/http/port/http_exchange.h"

#include <utility>

#include "server/base/out_of_memory.h"

namespace attention::server {

void HttpExchange::Reply(HttpReply reply) {
  std::function<void(HttpReply)> deliver;
  std::function<void()> forgotten;  // ends without the lock
  {
    const std::lock_guard lock(mutex_);
    deliver = std::exchange(deliver_, nullptr);
    forgotten = std::exchange(on_gone_, nullptr);
  }
  if (deliver == nullptr) return;
  const absl::Status delivered = WithoutBadAlloc([&] {
    deliver(std::move(reply));
    return absl::OkStatus();
  });
  if (delivered.ok()) return;
  const std::lock_guard lock(mutex_);
  lost_ = true;
}

bool HttpExchange::IsLost() {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void HttpExchange::OnGone(std::function<void()> gone) {
  {
    const std::lock_guard lock(mutex_);
    if (deliver_ == nullptr) return;
    if (!gone_) {
      on_gone_ = std::move(gone);
      return;
    }
  }
  gone();
}

void HttpExchange::SayGone() {
  std::function<void()> gone;
  {
    const std::lock_guard lock(mutex_);
    gone_ = true;
    gone = std::exchange(on_gone_, nullptr);
  }
  if (gone != nullptr) gone();
}

}  // namespace attention::server
