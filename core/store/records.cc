#include "core/store/records.h"

#include <algorithm>
#include <iterator>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"

namespace attention::store {

Time Record::Due() const {
  if (!idle_limit || *idle_limit > Time::max() - last_used) return Time::max();
  return last_used + *idle_limit;
}

Record* OwnerRecords::Find(absl::string_view name) {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &found->second;
}

const Record* OwnerRecords::Find(absl::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &found->second;
}

Record& OwnerRecords::Add(Record record) {
  std::list<Record*> place(1);
  std::string name = record.name;
  const auto at = by_name_.emplace(std::move(name), std::move(record)).first;
  absl::Cleanup take_back = [&] { by_name_.erase(at); };  // without memory
  Record& added = at->second;
  by_label_.emplace(LabelAndName(added.label, added.name), &added);
  std::move(take_back).Cancel();
  added.of = this;
  place.front() = &added;
  added.by_use = place.begin();
  by_use_.splice(by_use_.end(), place);
  return added;
}

void OwnerRecords::Use(Record& record, Time now) {
  record.last_used = std::max(record.last_used, now);
  by_use_.splice(by_use_.end(), by_use_, record.by_use);
}

Record OwnerRecords::Take(Record& record) {
  by_label_.erase(LabelAndName(record.label, record.name));
  by_use_.erase(record.by_use);
  return std::move(by_name_.extract(record.name).mapped());
}

Record* OwnerRecords::Next(Search& search) {
  while (search.left > 0) {
    --search.left;
    const auto place = search.next++;
    if (!(*place)->IsInUse()) return *place;
    by_use_.splice(by_use_.end(), by_use_, place);
  }
  return nullptr;
}

std::vector<const Record*> OwnerRecords::List(const ListQuery& query) const {
  auto next = by_label_.lower_bound(LabelAndName(query.label, ""));
  if (query.after) {
    const LabelAndName after(query.after->label, query.after->name);
    if (after >= LabelAndName(query.label, "")) {
      next = by_label_.upper_bound(after);
    }
  }
  std::vector<const Record*> records;
  for (; next != by_label_.end(); ++next) {
    const absl::string_view label = next->first.first;
    const bool matches = query.match == ListQuery::Match::kEqual
                             ? label == query.label
                             : absl::StartsWith(label, query.label);
    if (!matches) break;
    records.push_back(next->second);
    if (static_cast<int64_t>(records.size()) > query.most) break;
  }
  return records;
}

std::vector<Record*> OwnerRecords::WithPrefix(absl::string_view prefix,
                                              size_t most) {
  std::vector<Record*> records;
  for (auto next = by_name_.lower_bound(prefix);
       next != by_name_.end() && records.size() < most &&
       absl::StartsWith(next->first, prefix);
       ++next) {
    records.push_back(&next->second);
  }
  return records;
}

void IdleQueue::Add(Record& record) {
  if (!record.idle_limit) return;
  record.listed_due = record.Due();
  due_.emplace(record.listed_due, &record);
}

void IdleQueue::Remove(Record& record) {
  if (record.idle_limit) due_.erase({record.listed_due, &record});
}

Record* IdleQueue::Next(Time now, bool& expired) {
  if (due_.empty() || due_.begin()->first > now) return nullptr;
  Record* record = due_.begin()->second;
  if (record->IsInUse()) record->of->Use(*record, now);
  expired = record->Due() <= now;
  if (!expired) {
    auto place = due_.extract(due_.begin());  // so that no memory is needed
    place.value().first = record->listed_due = record->Due();
    due_.insert(std::move(place));
  }
  return record;
}

}  // namespace attention::store
