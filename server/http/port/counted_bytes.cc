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

Refusal ByteBudget::Resize(Ledger::Hold& hold, const std::string& address,
                           int64_t bytes) const {
  Refusal why = Refusal::kNone;
  const auto may = [this, bytes, &why](const Ledger::Account& all,
                                       const Ledger::Account& own) {
    const int64_t left =
        limit_of_address() - own.of(Kept::kBodies).amount - bytes;
    if (bytes > limit - all.of(Kept::kBodies).amount) {
      why = Refusal::kServerMemory;
    } else if ((bytes + 1) / 2 > left) {
      why = Refusal::kCallerMemory;
    }
    return why == Refusal::kNone;
  };
  if (hold) {
    ledger->Resize(hold, bytes, may);
  } else {
    hold = ledger->Take(Kept::kBodies, {.address = address}, bytes, may);
  }
  return why;
}

CountedBytes::~CountedBytes() { std::free(bytes_); }

void CountedBytes::Swap(CountedBytes& other) noexcept {
  std::swap(budget_, other.budget_);
  std::swap(address_, other.address_);
  std::swap(hold_, other.hold_);
  std::swap(bytes_, other.bytes_);
  std::swap(size_, other.size_);
  std::swap(capacity_, other.capacity_);
}

absl::Status CountedBytes::Grow(size_t bytes, size_t most, Refusal* refusal) {
  if (bytes <= room()) return absl::OkStatus();
  const size_t needed = size_ + bytes;
  size_t wanted =
      std::max(needed, std::min(most, std::max(2 * capacity_, kLeastGrowth)));
  const auto take = [this, &wanted] {
    return budget_ == nullptr
               ? Refusal::kNone
               : budget_->Resize(hold_, address_, static_cast<int64_t>(wanted));
  };
  Refusal why = take();
  // Less ahead, at last none: nobody asked for more.
  while (why != Refusal::kNone && wanted > needed) {
    wanted = needed + (wanted - needed) / 2;
    why = take();
  }
  if (why != Refusal::kNone) {
    if (refusal != nullptr) *refusal = why;
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
    if (hold_) budget_->ledger->Resize(hold_, static_cast<int64_t>(capacity_));
    if (refusal != nullptr) *refusal = Refusal::kServerMemory;
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
