#include "server/scheduling/open_calls.h"

namespace attention::server {

void OpenCalls::Add(const std::string& address, int64_t calls) {
  if (calls == 0) return;
  const std::lock_guard lock(mutex_);
  total_ += calls;
  const auto found = of_address_.try_emplace(address, 0).first;
  found->second += calls;
  if (found->second == 0) of_address_.erase(found);
}

int64_t OpenCalls::Total() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

int64_t OpenCalls::Of(const std::string& address) const {
  const std::lock_guard lock(mutex_);
  const auto found = of_address_.find(address);
  return found == of_address_.end() ? 0 : found->second;
}

std::string OpenCalls::Largest() const {
  const std::lock_guard lock(mutex_);
  const auto largest = std::max_element(
      of_address_.begin(), of_address_.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  return largest == of_address_.end() ? "" : largest->first;
}

}  // namespace attention::server
