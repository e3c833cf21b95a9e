#include "core/store/store.h"

#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace attention::store {
namespace {

absl::Status Deleted(absl::string_view name) {
  return absl::NotFoundError(absl::StrCat("sequence '", name, "' was deleted"));
}

}  // namespace

Store::Store(const StoreOptions& options)
    : options_(options),
      budget_(std::make_shared<PageBudget>(options.memory_limit)) {}

OwnerRecords& Store::OwnerOf(absl::string_view owner) {
  const auto found = owners_.find(owner);
  if (found != owners_.end()) return found->second;
  const std::string name(owner);
  auto budget = std::make_shared<PageBudget>(PageBudget::kUnlimited, budget_);
  return owners_
      .emplace(
          std::piecewise_construct, std::forward_as_tuple(name),
          std::forward_as_tuple(name, std::move(budget), options_.gone_names))
      .first->second;
}

const OwnerRecords* Store::FindOwner(absl::string_view owner) const {
  const auto found = owners_.find(owner);
  return found == owners_.end() ? nullptr : &found->second;
}

absl::StatusOr<Record*> Store::FindRecord(absl::string_view owner,
                                          absl::string_view name,
                                          const Sequence* only) {
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return NotFound(name, std::nullopt);
  Record* record = found->second.Find(name);
  if (record != nullptr) {
    const bool other = only != nullptr && record->sequence.get() != only;
    if (other) return Deleted(name);
    return record;
  }
  return NotFound(name, found->second.gone().Find(name));
}

absl::StatusOr<Store::Entry> Store::Use(absl::string_view owner,
                                        absl::string_view name, Time now,
                                        const Sequence* only) {
  const std::lock_guard lock(mutex_);
  const absl::StatusOr<Record*> record = FindRecord(owner, name, only);
  if (!record.ok()) return record.status();
  (*record)->of->Use(**record, now);
  return Entry{(*record)->sequence, (*record)->of};
}

absl::StatusOr<std::shared_ptr<Sequence>> Store::Find(absl::string_view owner,
                                                      absl::string_view name,
                                                      Time now) {
  absl::StatusOr<Entry> entry = Use(owner, name, now);
  if (!entry.ok()) return entry.status();
  return std::move(entry->sequence);
}

Record Store::Take(Record& record) {
  idle_.Remove(record);
  return record.of->Take(record);
}

absl::StatusOr<Appended> Store::Append(absl::string_view owner,
                                       absl::string_view name, int64_t layer,
                                       std::optional<int64_t> position,
                                       const KeyValueBlock& rows, Time now,
                                       const Sequence* only) {
  const absl::StatusOr<Entry> entry = Use(owner, name, now, only);
  if (!entry.ok()) return entry.status();
  Sequence& sequence = *entry->sequence;
  absl::StatusOr<Appended> appended;
  const auto attempt = [&] {
    appended = sequence.Append(layer, position, rows);
    return appended.status();
  };
  const size_t rank = rows.key.shape.size();
  const int64_t keys = rank < 2 ? 0 : rows.key.shape[rank - 2];
  const auto needed = [&] {
    return Room{sequence.LeastBytesWith(layer, position, keys),
                sequence.GrowthWith(layer, position, keys)};
  };
  absl::Status status = WithRoom(*entry->owner, needed, attempt);
  if (!status.ok()) return status;
  entry->owner->counts().appended_keys += appended->new_keys;
  return appended;
}

absl::Status Store::Truncate(absl::string_view owner, absl::string_view name,
                             int64_t length, Time now) {
  const absl::StatusOr<Entry> entry = Use(owner, name, now);
  if (!entry.ok()) return entry.status();
  return entry->sequence->Truncate(length);
}

absl::Status Store::Delete(absl::string_view owner, absl::string_view name,
                           const Sequence* only) {
  Record gone;  // ends after the lock
  {
    const std::lock_guard lock(mutex_);
    const absl::StatusOr<Record*> record = FindRecord(owner, name, only);
    if (!record.ok()) return record.status();
    ++(*record)->of->counts().deletions;
    gone = Take(**record);
  }
  gone.sequence->Close(Deleted(name));
  return absl::OkStatus();
}

void Store::DeleteAll(absl::string_view owner, absl::string_view prefix,
                      const Sequence* only) {
  std::vector<Record> gone;  // end after the lock
  {
    const std::lock_guard lock(mutex_);
    const auto found = owners_.find(owner);
    if (found == owners_.end()) return;
    OwnerRecords& of = found->second;
    const std::vector<Record*> records = of.WithPrefix(prefix, kMostCreated);
    const bool there = absl::c_any_of(records, [only](const Record* record) {
      return record->sequence.get() == only;
    });
    if (only != nullptr && !there) return;
    gone.reserve(records.size());
    for (Record* record : records) {
      ++of.counts().deletions;
      gone.push_back(Take(*record));
    }
  }
  for (const Record& record : gone) {
    record.sequence->Close(Deleted(record.name));
  }
}

}  // namespace attention::store
