#include "core/store/store.h"

#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace attention::store {
namespace {

// What a store keeps of a sequence beside the sequence: a record, its places in
// three orders, and what the allocator rounds up; the name is kept twice.
int64_t RecordBytes(absl::string_view name, absl::string_view label) {
  return 512 + 2 * static_cast<int64_t>(name.size()) +
         static_cast<int64_t>(label.size());
}

absl::Status CheckNew(const std::string& name, const std::string& label,
                      const std::optional<Duration>& idle_limit) {
  absl::Status status = name.empty() ? absl::OkStatus() : CheckName(name);
  status.Update(CheckLabel(label));
  if (idle_limit && *idle_limit <= Duration::zero()) {
    status.Update(absl::InvalidArgumentError(
        "idle_limit: not above 0 (expected: above 0, or none)"));
  }
  return status;
}

absl::Status Taken(absl::string_view name) {
  return absl::AlreadyExistsError(
      absl::StrCat("name: there is a sequence '", name, "'"));
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
      .emplace(std::piecewise_construct, std::forward_as_tuple(name),
               std::forward_as_tuple(name, std::move(budget),
                                     options_.gone_names))
      .first->second;
}

const OwnerRecords* Store::FindOwner(absl::string_view owner) const {
  const auto found = owners_.find(owner);
  return found == owners_.end() ? nullptr : &found->second;
}

absl::StatusOr<Record*> Store::FindRecord(absl::string_view owner,
                                          absl::string_view name) {
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return NotFound(name, std::nullopt);
  Record* record = found->second.Find(name);
  if (record != nullptr) return record;
  return NotFound(name, found->second.gone().Find(name));
}

absl::StatusOr<Store::Entry> Store::Use(absl::string_view owner,
                                        absl::string_view name, Time now) {
  const std::lock_guard lock(mutex_);
  const absl::StatusOr<Record*> record = FindRecord(owner, name);
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

void Store::AddRecord(OwnerRecords& owner, Record record) {
  owner.gone().Forget(record.name);
  ++owner.counts().created;
  idle_.Add(owner.Add(std::move(record)));
}

Record Store::Take(Record& record) {
  idle_.Remove(record);
  return record.of->Take(record);
}

// Names that the callers chose are new; those that are wanted are made.
absl::StatusOr<std::vector<Record>> Store::MakeRecords(
    OwnerRecords& owner, absl::Span<const NewSequence> wanted, Time now) {
  std::vector<Record> records;
  records.reserve(wanted.size());
  for (const NewSequence& one : wanted) {
    absl::StatusOr<std::string> name = one.name;
    if (one.name.empty()) name = MakeName();
    if (!name.ok()) return name.status();
    std::shared_ptr<Sequence> sequence;
    const absl::Status status = WithRoom(nullptr, [&] {
      auto made = Sequence::Create(one.form, owner.budget(),
                                   RecordBytes(*name, one.label));
      if (made.ok()) sequence = *std::move(made);
      return made.status();
    });
    if (!status.ok()) return status;
    records.push_back({*std::move(name), one.label, std::move(sequence),
                       one.idle_limit, now});
  }
  return records;
}

// All of them or none.
absl::Status Store::AddAll(OwnerRecords& owner, std::vector<Record> records) {
  const std::lock_guard lock(mutex_);
  for (const Record& record : records) {
    if (owner.Find(record.name) != nullptr) return Taken(record.name);
  }
  for (Record& record : records) AddRecord(owner, std::move(record));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Store::Create(
    absl::string_view owner, absl::Span<const NewSequence> wanted, Time now) {
  if (wanted.size() > kMostCreated) {
    return absl::InvalidArgumentError(
        absl::StrCat("sequences: ", wanted.size(), " (expected: at most ",
                     kMostCreated, ")"));
  }
  OwnerRecords* of = nullptr;
  {
    // Looked at before room is made for them, and for good in AddAll().
    const std::lock_guard lock(mutex_);
    of = &OwnerOf(owner);
    std::set<absl::string_view> names;
    for (const NewSequence& one : wanted) {
      absl::Status status = CheckNew(one.name, one.label, one.idle_limit);
      status.Update(CheckForm(one.form));
      if (!status.ok()) return status;
      if (one.name.empty()) continue;
      const bool first = names.insert(one.name).second;
      if (!first || of->Find(one.name) != nullptr) return Taken(one.name);
    }
  }
  absl::StatusOr<std::vector<Record>> records = MakeRecords(*of, wanted, now);
  if (!records.ok()) return records.status();
  std::vector<std::string> names;
  names.reserve(records->size());
  for (const Record& record : *records) names.push_back(record.name);
  const absl::Status status = AddAll(*of, *std::move(records));
  if (!status.ok()) return status;
  return names;
}

absl::StatusOr<Appended> Store::Append(absl::string_view owner,
                                       absl::string_view name, int64_t layer,
                                       std::optional<int64_t> position,
                                       const KeyValueBlock& rows, Time now) {
  const absl::StatusOr<Entry> entry = Use(owner, name, now);
  if (!entry.ok()) return entry.status();
  Sequence& sequence = *entry->sequence;
  absl::StatusOr<Appended> appended;
  const auto attempt = [&] {
    appended = sequence.Append(layer, position, rows);
    return appended.status();
  };
  const size_t rank = rows.key.shape.size();
  const int64_t keys = rank < 2 ? 0 : rows.key.shape[rank - 2];
  // What never fits drives nobody out.
  const absl::Status status = sequence.MayFit(keys, options_.memory_limit)
                                  ? WithRoom(&sequence, attempt)
                                  : attempt();
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

absl::StatusOr<std::string> Store::Fork(absl::string_view owner,
                                        absl::string_view name,
                                        const NewFork& fork, Time now) {
  absl::Status status =
      CheckNew(fork.name, fork.label.value_or(""), fork.idle_limit);
  if (!status.ok()) return status;
  absl::StatusOr<std::string> own_name = fork.name;
  if (fork.name.empty()) own_name = MakeName();
  if (!own_name.ok()) return own_name.status();
  Record record{*own_name, "", nullptr, fork.idle_limit, now};
  Entry entry;
  {
    const std::lock_guard lock(mutex_);
    const absl::StatusOr<Record*> from = FindRecord(owner, name);
    if (!from.ok()) return from.status();
    OwnerRecords& of = *(*from)->of;
    if (of.Find(*own_name) != nullptr) return Taken(*own_name);
    of.Use(**from, now);
    record.label = fork.label.value_or((*from)->label);
    if (!fork.idle_limit) record.idle_limit = (*from)->idle_limit;
    entry = {(*from)->sequence, &of};
  }
  status = WithRoom(entry.sequence.get(), [&] {
    auto made = entry.sequence->Fork(fork.length,
                                     RecordBytes(*own_name, record.label));
    if (made.ok()) record.sequence = *std::move(made);
    return made.status();
  });
  if (!status.ok()) return status;
  const std::lock_guard lock(mutex_);
  if (entry.owner->Find(*own_name) != nullptr) return Taken(*own_name);
  AddRecord(*entry.owner, std::move(record));
  ++entry.owner->counts().forks;
  return own_name;
}

absl::Status Store::Delete(absl::string_view owner, absl::string_view name) {
  Record gone;  // ends after the lock
  {
    const std::lock_guard lock(mutex_);
    const absl::StatusOr<Record*> record = FindRecord(owner, name);
    if (!record.ok()) return record.status();
    ++(*record)->of->counts().deletions;
    gone = Take(**record);
  }
  gone.sequence->Close(
      absl::NotFoundError(absl::StrCat("sequence '", name, "' was deleted")));
  return absl::OkStatus();
}

}  // namespace attention::store
