// How a store makes room: sequences that expire and those that are evicted, and
// what it says where there is none.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/store/store.h"

namespace attention::store {
namespace {

// Owners that an error names.
constexpr size_t kNamedOwners = 3;
// Sequences in use that are passed over before others get the lock.
constexpr size_t kPassedAtOnce = 64;

}  // namespace

absl::Status Store::WithRoom(OwnerRecords& asker,
                             absl::FunctionRef<int64_t()> least_bytes,
                             absl::FunctionRef<absl::Status()> attempt) {
  for (;;) {
    absl::Status status = attempt();
    if (!absl::IsResourceExhausted(status)) return status;
    const bool fits = least_bytes() <= options_.memory_limit;
    if (!fits || !options_.evict || !EvictOne(asker)) {
      return Exhausted(status, fits);
    }
  }
}

OwnerRecords* Store::LargestOwner() {
  OwnerRecords* largest = nullptr;
  for (auto& [name, owner] : owners_) {
    if (largest == nullptr ||
        owner.budget()->held() > largest->budget()->held()) {
      largest = &owner;
    }
  }
  return largest;
}

// Of who holds most, or, where all of theirs are in use, of who asks: a large
// owner's long requests keep nobody from replacing what is their own.
bool Store::EvictOne(OwnerRecords& asker) {
  return EvictOneOf([this] { return LargestOwner(); }) ||
         EvictOneOf([&] { return &asker; });
}

// False where all sequences of that owner are in use: their pages would stay
// held.
bool Store::EvictOneOf(absl::FunctionRef<OwnerRecords*()> choose) {
  size_t passed = 0;
  for (;;) {
    Record gone;  // ends after the lock
    {
      const std::lock_guard lock(mutex_);
      OwnerRecords* const owner = choose();
      if (owner == nullptr || passed >= owner->size()) return false;
      if (Record* record = owner->LeastRecentlyUsed(kPassedAtOnce)) {
        ++owner->counts().evictions;
        gone = Take(*record);
        owner->gone().Add(gone.name, Gone::kEvicted);
      }
    }
    if (gone.sequence != nullptr) {
      gone.sequence->Close(NotFound(gone.name, Gone::kEvicted));
      return true;
    }
    passed += kPassedAtOnce;
  }
}

absl::Status Store::Exhausted(const absl::Status& status, bool fits) const {
  std::string text =
      absl::StrCat(status.message(), "; sequences hold ", budget_->held(),
                   " of ", budget_->limit(), " bytes");
  std::vector<OwnerFigures> figures = Figures();
  std::stable_sort(
      figures.begin(), figures.end(),
      [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  // Without callers that are known there is one owner, without a name.
  if (figures.size() == 1 && figures[0].owner.empty()) figures.clear();
  if (figures.size() > kNamedOwners) figures.resize(kNamedOwners);
  const char* between = ", most of them: ";
  for (const OwnerFigures& one : figures) {
    absl::StrAppend(&text, std::exchange(between, ", "), "'",
                    absl::CHexEscape(one.owner), "' ", one.bytes);
  }
  absl::Status exhausted = absl::ResourceExhaustedError(text);
  if (!fits) exhausted.SetPayload(kNeverFits, absl::Cord());
  return exhausted;
}

Expired Store::Expire(Time now, int64_t most) {
  std::vector<Record> gone;  // end after the lock
  Expired expired;
  {
    const std::lock_guard lock(mutex_);
    for (int64_t looked_at = 0;; ++looked_at) {
      bool is_due = false;
      Record* record = idle_.Next(now, is_due);
      if (record == nullptr) break;
      if (looked_at == most) {
        expired.more = true;
        break;
      }
      if (!is_due) continue;
      OwnerRecords& owner = *record->of;
      ++owner.counts().expirations;
      gone.push_back(Take(*record));
      owner.gone().Add(gone.back().name, Gone::kExpired);
    }
  }
  for (const Record& record : gone) {
    record.sequence->Close(NotFound(record.name, Gone::kExpired));
  }
  expired.sequences = static_cast<int64_t>(gone.size());
  return expired;
}

}  // namespace attention::store
