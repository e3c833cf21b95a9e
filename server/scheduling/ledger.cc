#include "server/scheduling/ledger.h"

#include <algorithm>
#include <chrono>

#include "absl/cleanup/cleanup.h"

namespace attention::server {
namespace {

// Accounts that hold nothing are kept up to this many: the next call of one of
// them finds its entry.
constexpr size_t kMostIdle = 1024;
// Between two looks at all of them.
constexpr std::chrono::seconds kSweepPause{1};

}  // namespace

Ledger::Hold& Ledger::Hold::operator=(Hold&& other) noexcept {
  if (this != &other) {
    if (ledger_ != nullptr) Return();
    ledger_ = std::exchange(other.ledger_, nullptr);
    account_ = other.account_;
    kind_ = other.kind_;
    amount_ = other.amount_;
  }
  return *this;
}

void Ledger::Hold::Return() {
  Ledger* const ledger = std::exchange(ledger_, nullptr);
  const std::lock_guard lock(ledger->mutex_);
  ledger->Add(kind_, *account_, {-1, -amount_});
}

void Ledger::Account::Add(Kept kind, const Sum& more) {
  Sum& sum = sums_[static_cast<size_t>(kind)];
  sum.holds += more.holds;
  sum.amount += more.amount;
  holds_ += more.holds;
}

bool Ledger::Account::IsIdle(Clock::time_point now) const {
  return holds_ == 0 && connections_ == 0 && requests_quota.IsFull(now) &&
         bytes_quota.IsFull(now);
}

void Ledger::Add(Kept kind, Account& account, const Sum& more) {
  for (Account* each : {&all_, &account, account.address_}) {
    if (each != nullptr) each->Add(kind, more);
  }
}

Ledger::Hold Ledger::Take(Kept kind, const Holder& holder, int64_t amount,
                          Check check, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  ForgetIdle(now);
  Account& account = Find(holder);
  if (!check(all_, account)) return {};
  Add(kind, account, {1, amount});
  return {*this, kind, account, amount};
}

bool Ledger::Resize(Hold& hold, int64_t amount, Check check) {
  const std::lock_guard lock(mutex_);
  Add(hold.kind_, *hold.account_, {-1, -hold.amount_});
  // Also where the check throws, for want of memory.
  const absl::Cleanup count = [this, &hold] {
    Add(hold.kind_, *hold.account_, {1, hold.amount_});
  };
  if (!check(all_, *hold.account_)) return false;
  hold.amount_ = amount;
  return true;
}

Ledger::Account& Ledger::Find(const Holder& holder) {
  if (holder.name.empty()) return addresses_[holder.address];
  const auto [found, is_new] = named_.try_emplace(holder.name);
  Account& account = found->second;
  if (is_new && !holder.address.empty()) {
    account.address_ = &addresses_[holder.address];
    ++account.address_->connections_;
  }
  return account;
}

Ledger::Sum Ledger::Of(Kept kind) const {
  const std::lock_guard lock(mutex_);
  return all_.of(kind);
}

Ledger::Sum Ledger::Of(Kept kind, const std::string& address) const {
  const std::lock_guard lock(mutex_);
  const auto found = addresses_.find(address);
  return found == addresses_.end() ? Sum() : found->second.of(kind);
}

std::string Ledger::Largest(Kept kind) const {
  const std::lock_guard lock(mutex_);
  const auto largest = std::max_element(addresses_.begin(), addresses_.end(),
                                        [kind](const auto& a, const auto& b) {
                                          return a.second.of(kind).amount <
                                                 b.second.of(kind).amount;
                                        });
  return largest == addresses_.end() ? "" : largest->first;
}

void Ledger::ForgetIdle(Clock::time_point now) {
  const size_t known = named_.size() + addresses_.size();
  if (now < next_sweep_ ||
      known <= kMostIdle + static_cast<size_t>(all_.holds_)) {
    return;
  }
  next_sweep_ = now + kSweepPause;
  std::erase_if(named_, [now](const auto& each) {
    const Account& account = each.second;
    if (!account.IsIdle(now)) return false;
    if (account.address_ != nullptr) --account.address_->connections_;
    return true;
  });
  std::erase_if(addresses_,
                [now](const auto& each) { return each.second.IsIdle(now); });
}

}  // namespace attention::server
