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

}  // namespace

absl::Status Store::WithRoom(OwnerRecords& asker,
                             absl::FunctionRef<Room()> needed,
                             absl::FunctionRef<absl::Status()> attempt) {
  for (;;) {
    const int64_t made = rooms_made_;
    absl::Status status = attempt();
    if (!absl::IsResourceExhausted(status)) return status;
    const Room room = needed();
    const bool fits = room.least <= options_.memory_limit;
    if (!fits || !options_.evict || !MakeRoom(asker, room, made)) {
      return Exhausted(status, fits);
    }
  }
}

bool Store::MakeRoom(OwnerRecords& asker, const Room& room, int64_t made) {
  const std::lock_guard making(making_room_);
  // What others have made since may do: who finds that it does not comes again.
  if (rooms_made_ != made) return true;
  std::vector<Record> gone;  // end after the lock
  {
    const std::lock_guard lock(mutex_);
    const std::vector<Record*> chosen = WhoGoes(asker, room);
    // What lacks memory comes before they are taken.
    gone.reserve(chosen.size());
    for (Record* record : chosen) {
      OwnerRecords& owner = *record->of;
      owner.gone().Add(record->name, Gone::kEvicted);
      ++owner.counts().evictions;
      gone.push_back(Take(*record));
    }
  }
  if (gone.empty()) return false;
  for (const Record& record : gone) {
    record.sequence->Close(NotFound(record.name, Gone::kEvicted));
  }
  gone.clear();  // their pages are free before anybody else looks
  ++rooms_made_;
  return true;
}

// One after the other, of who then holds most, or, where all of theirs are in
// use, of who asks: a large owner's long requests keep nobody from replacing
// what is their own. At least one; none where all do not suffice.
std::vector<Record*> Store::WhoGoes(const OwnerRecords& asker,
                                    const Room& room) {
  struct Owner {
    OwnerRecords* records;
    OwnerRecords::Search search;
    int64_t held;
  };
  std::vector<Owner> owners;
  owners.reserve(owners_.size());
  for (auto& [name, records] : owners_) {
    owners.push_back(
        {&records, records.FromLeastRecentlyUsed(), records.budget()->held()});
  }
  Owner& own = *std::find_if(owners.begin(), owners.end(), [&](const Owner& o) {
    return o.records == &asker;
  });
  if (room.ahead) own.held += room.more.bytes;
  const int64_t free = budget_->limit() - budget_->held();
  const int64_t missing = std::max<int64_t>(1, room.more.bytes - free);
  GivenBack given(room.more);
  std::vector<Record*> chosen;
  while (given.bytes() < missing) {
    Owner* owner = &*std::max_element(
        owners.begin(), owners.end(),
        [](const Owner& a, const Owner& b) { return a.held < b.held; });
    Record* record = owner->records->Next(owner->search);
    if (record == nullptr) {
      owner = &own;
      record = owner->records->Next(owner->search);
    }
    if (record == nullptr) return {};
    const int64_t before = given.bytes();
    record->sequence->AddTo(given);
    owner->held -= given.bytes() - before;
    chosen.push_back(record);
  }
  return chosen;
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
      // What lacks memory comes before it is taken.
      if (gone.empty()) gone.reserve(static_cast<size_t>(most));
      OwnerRecords& owner = *record->of;
      owner.gone().Add(record->name, Gone::kExpired);
      ++owner.counts().expirations;
      gone.push_back(Take(*record));
    }
  }
  for (const Record& record : gone) {
    record.sequence->Close(NotFound(record.name, Gone::kExpired));
  }
  expired.sequences = static_cast<int64_t>(gone.size());
  return expired;
}

}  // namespace attention::store
