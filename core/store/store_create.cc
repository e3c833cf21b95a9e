// How sequences come into a store: made, or forked.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "core/store/store.h"

namespace attention::store {
namespace {

// What a store keeps of a sequence beside the sequence: a record, its places in
// three orders, and what the allocator rounds up; the name is kept twice.
int64_t RecordBytes(absl::string_view name, absl::string_view label) {
  return 320 + 2 * static_cast<int64_t>(name.size()) +
         static_cast<int64_t>(label.size());
}

absl::Status CheckNew(absl::string_view name_field, const std::string& name,
                      const std::string& label,
                      const std::optional<Duration>& idle_limit) {
  absl::Status status =
      name.empty() ? absl::OkStatus() : CheckName(name_field, name);
  status.Update(CheckLabel(label));
  if (idle_limit && *idle_limit <= Duration::zero()) {
    status.Update(absl::InvalidArgumentError(
        "idle_limit: not above 0 (expected: above 0, or none)"));
  }
  return status;
}

absl::Status Taken(absl::string_view field, absl::string_view name) {
  return absl::AlreadyExistsError(
      absl::StrCat(field, ": there is a sequence '", name, "'"));
}

// Which of several it is about.
absl::Status OfNumber(bool numbered, size_t number,
                      const absl::Status& status) {
  if (!numbered) return status;
  return absl::Status(status.code(), absl::StrCat("sequences[", number,
                                                  "]: ", status.message()));
}

}  // namespace

int64_t Store::BytesOf(const NewSequence& wanted) {
  // As long as MakeName() has it.
  constexpr absl::string_view kMadeName = "0123456789abcdef0123456789abcdef";
  const int64_t record =
      RecordBytes(wanted.name.empty() ? kMadeName : wanted.name, wanted.label);
  return Sequence::BytesOf(wanted.form, wanted.lengths, record);
}

// Where it lacks memory, nothing has changed.
Record& Store::AddRecord(OwnerRecords& owner, Record record) {
  Record& added = owner.Add(std::move(record));
  absl::Cleanup take_back = [&] { owner.Take(added); };
  idle_.Add(added);
  std::move(take_back).Cancel();
  owner.gone().Forget(added.name);
  return added;
}

// For all of them, before any is built: what does not fit takes no time, and
// drives nobody out piece by piece.
absl::Status Store::MakeRoomFor(OwnerRecords& owner, size_t sequences,
                                int64_t bytes) {
  return WithRoom(
      owner,
      [&] {
        return Room{bytes, {bytes}, /*ahead=*/true};
      },
      [&] {
        if (bytes <= budget_->limit() - budget_->held()) {
          return absl::OkStatus();
        }
        const std::string what =
            sequences == 1 ? "a sequence"
                           : absl::StrCat(sequences, " sequences, in all");
        return absl::ResourceExhaustedError(
            absl::StrCat("no memory for ", what, " of ", bytes,
                         " bytes: the limit is reached"));
      });
}

// Names that the callers chose are new; those that are wanted are made.
absl::StatusOr<std::vector<Record>> Store::MakeRecords(
    OwnerRecords& owner, absl::Span<const NewSequence> wanted, Time now) {
  std::vector<Record> records;
  records.reserve(wanted.size());
  int64_t bytes = 0;
  for (const NewSequence& one : wanted) {
    bytes += std::min(BytesOf(one), PageBudget::kUnlimited - bytes);
  }
  absl::Status status = MakeRoomFor(owner, wanted.size(), bytes);
  if (!status.ok()) return status;
  for (const NewSequence& one : wanted) {
    absl::StatusOr<std::string> name = one.name;
    if (one.name.empty()) name = MakeName();
    if (!name.ok()) return name.status();
    records.push_back(
        {*std::move(name), one.label, nullptr, one.idle_limit, now});
  }
  int64_t left = bytes;  // of those that are not made yet
  for (size_t n = 0; n < records.size(); ++n) {
    const NewSequence& one = wanted[n];
    Record& record = records[n];
    const int64_t own = RecordBytes(record.name, record.label);
    status = WithRoom(
        owner,
        [&] {
          return Room{bytes, {left}};
        },
        [&] {
          auto made =
              Sequence::Create(one.form, owner.budget(), own, one.lengths);
          if (!made.ok()) return made.status();
          record.sequence = *std::move(made);
          return absl::OkStatus();
        });
    if (!status.ok()) return status;
    if (one.claimed) record.sequence->Claim();
    left -= BytesOf(one);
  }
  return records;
}

// All of them or none.
absl::Status Store::AddAll(OwnerRecords& owner, std::vector<Record> records,
                           bool numbered) {
  const std::lock_guard lock(mutex_);
  for (size_t n = 0; n < records.size(); ++n) {
    if (owner.Find(records[n].name) == nullptr) continue;
    return OfNumber(numbered, n, Taken("name", records[n].name));
  }
  std::vector<Record*> added;
  added.reserve(records.size());
  absl::Cleanup take_back = [&] {  // without memory
    for (Record* one : added) Take(*one);
  };
  for (Record& record : records) {
    added.push_back(&AddRecord(owner, std::move(record)));
  }
  std::move(take_back).Cancel();
  owner.counts().created += static_cast<int64_t>(records.size());
  return absl::OkStatus();
}

absl::StatusOr<Created> Store::Create(absl::string_view owner,
                                      const NewSequence& wanted, Time now) {
  auto created = CreateAll(owner, {&wanted, 1}, now, /*numbered=*/false);
  if (!created.ok()) return created.status();
  return std::move(created->front());
}

absl::StatusOr<std::vector<std::string>> Store::Create(
    absl::string_view owner, absl::Span<const NewSequence> wanted, Time now) {
  std::vector<std::string> names;
  names.reserve(wanted.size());  // once they are made, nothing may fail
  auto created = CreateAll(owner, wanted, now, /*numbered=*/true);
  if (!created.ok()) return created.status();
  for (Created& one : *created) names.push_back(std::move(one.name));
  return names;
}

absl::StatusOr<std::vector<Created>> Store::CreateAll(
    absl::string_view owner, absl::Span<const NewSequence> wanted, Time now,
    bool numbered) {
  if (wanted.size() > kMostCreated) {
    return absl::InvalidArgumentError(absl::StrCat("sequences: ", wanted.size(),
                                                   " (expected: at most ",
                                                   kMostCreated, ")"));
  }
  OwnerRecords* of = nullptr;
  {
    // Looked at before room is made for them, and for good in AddAll().
    const std::lock_guard lock(mutex_);
    of = &OwnerOf(owner);
    std::set<absl::string_view> names;
    for (size_t n = 0; n < wanted.size(); ++n) {
      const NewSequence& one = wanted[n];
      absl::Status status =
          CheckNew("name", one.name, one.label, one.idle_limit);
      status.Update(CheckForm(one.form));
      if (status.ok() && !one.name.empty()) {
        const bool first = names.insert(one.name).second;
        if (!first || of->Find(one.name) != nullptr) {
          status = Taken("name", one.name);
        }
      }
      if (!status.ok()) return OfNumber(numbered, n, status);
    }
  }
  absl::StatusOr<std::vector<Record>> records = MakeRecords(*of, wanted, now);
  if (!records.ok()) return records.status();
  std::vector<Created> created;
  created.reserve(records->size());
  for (const Record& record : *records) {
    created.push_back({record.name, record.sequence});
  }
  absl::Status status = AddAll(*of, *std::move(records), numbered);
  if (!status.ok()) return status;
  return created;
}

absl::StatusOr<std::string> Store::Fork(absl::string_view owner,
                                        absl::string_view name,
                                        const NewFork& fork, Time now) {
  absl::Status status =
      CheckNew("new_name", fork.name, fork.label.value_or(""), fork.idle_limit);
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
    if (of.Find(*own_name) != nullptr) return Taken("new_name", *own_name);
    of.Use(**from, now);
    record.label = fork.label.value_or((*from)->label);
    if (!fork.idle_limit) record.idle_limit = (*from)->idle_limit;
    entry = {(*from)->sequence, &of};
  }
  const int64_t record_bytes = RecordBytes(*own_name, record.label);
  const auto needed = [&] {
    Growth more = entry.sequence->GrowthOfFork(fork.length);
    more.bytes += record_bytes;
    return Room{entry.sequence->LeastBytesWithFork(fork.length) + record_bytes,
                more};
  };
  status = WithRoom(*entry.owner, needed, [&] {
    auto made = entry.sequence->Fork(fork.length, record_bytes);
    if (!made.ok()) return made.status();
    record.sequence = *std::move(made);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  const std::lock_guard lock(mutex_);
  if (entry.owner->Find(*own_name) != nullptr) {
    return Taken("new_name", *own_name);
  }
  AddRecord(*entry.owner, std::move(record));
  ++entry.owner->counts().created;
  ++entry.owner->counts().forks;
  return own_name;
}

}  // namespace attention::store
