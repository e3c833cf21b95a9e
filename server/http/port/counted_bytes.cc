#include "server/http/port/counted_bytes.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "server/scheduling/retry_after.h"

namespace attention::server {
namespace {

constexpr size_t kLeastGrowth = 4 << 10;

}  // namespace

bool ByteBudget::Take(const std::string& address, int64_t bytes, int64_t had) {
  const std::lock_guard lock(mutex_);
  const auto same = of_address_.find(address);
  const int64_t of_address = same == of_address_.end() ? 0 : same->second;
  const int64_t left = limit_of_address() - of_address - bytes;
  if (bytes > limit_ - taken_ || (had + bytes + 1) / 2 > left) return false;
  taken_ += bytes;
  of_address_[address] += bytes;
  return true;
}

void ByteBudget::Return(const std::string& address, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  taken_ -= bytes;
  const auto same = of_address_.find(address);
  same->second -= bytes;
  if (same->second == 0) of_address_.erase(same);
}

int64_t ByteBudget::taken() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

CountedBytes::~CountedBytes() {
  std::free(bytes_);
  if (budget_ != nullptr && capacity_ > 0) {
    budget_->Return(address_, static_cast<int64_t>(capacity_));
  }
}

void CountedBytes::Swap(CountedBytes& other) noexcept {
  std::swap(budget_, other.budget_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  std::swap(size_, other.size_);
  std::swap(capacity_, other.capacity_);
}

absl::Status CountedBytes::Grow(size_t bytes, size_t most) {
  if (bytes <= room()) return absl::OkStatus();
  const size_t needed = size_ + bytes;
  const size_t wanted =
      std::max(needed, std::min(most, std::max(2 * capacity_, kLeastGrowth)));
  const auto more = static_cast<int64_t>(wanted - capacity_);
  if (budget_ != nullptr &&
      !budget_->Take(address_, more, static_cast<int64_t>(capacity_))) {
    return RetryAfter(
        absl::ResourceExhaustedError(absl::StrCat(
            "requests over HTTP that are being read take their share of the "
            "server's memory_limit (at most ",
            budget_->limit_of_one(), " bytes of one, ",
            budget_->limit_of_address(), " of one address)")),
        kTryAgain);
  }
  char* const grown = static_cast<char*>(std::realloc(bytes_, wanted));
  if (grown == nullptr) {
    errno = 0;  // it is handled here: see last_words.h
    if (budget_ != nullptr) budget_->Return(address_, more);
    return RetryAfter(
        absl::ResourceExhaustedError("the server is out of memory"), kTryAgain);
  }
  bytes_ = grown;
  capacity_ = wanted;
  return absl::OkStatus();
}

grpc::Slice CountedBytes::ToSlice() && {
  if (size_ == 0) return {};
  auto* const owner = new CountedBytes(std::move(*this));
  return {owner->bytes_, owner->size_,
          [](void* bytes) { delete static_cast<CountedBytes*>(bytes); }, owner};
}

}  // namespace attention::server
