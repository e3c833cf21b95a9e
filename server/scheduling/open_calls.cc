#include "server/scheduling/open_calls.h"

#include "absl/strings/str_cat.h"
#include "server/scheduling/retry_after.h"

namespace attention::server {

void OpenCalls::Add(const std::string& address, int64_t calls) {
  if (calls == 0) return;
  const std::lock_guard lock(mutex_);
  const auto found = of_address_.try_emplace(address, 0).first;
  total_ += calls;
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

absl::Status OpenCalls::CheckRoom(const std::string& address) const {
  const int64_t most = limits_.per_address - limits_.per_address / 4;
  const int64_t open = Of(address);
  if (open < most) return absl::OkStatus();
  return RetryAfter(absl::ResourceExhaustedError(
                        absl::StrCat("the caller's address has ", open,
                                     " open calls (a stream begins "
                                     "below ",
                                     most, ", by the server's memory_limit)")),
                    kTryAgain);
}

std::string OpenCalls::Largest() const {
  const std::lock_guard lock(mutex_);
  const auto largest = std::max_element(
      of_address_.begin(), of_address_.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  return largest == of_address_.end() ? "" : largest->first;
}

}  // namespace attention::server
