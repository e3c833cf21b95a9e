// What a store tells about its sequences and owners.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/store/store.h"

namespace attention::store {
namespace {

// The record as it is under the lock; its sequence's keys are counted after it.
Description Begin(const Record& record, Time now) {
  return {.name = record.name,
          .label = record.label,
          .form = record.sequence->form(),
          .lengths = {},
          .page_bytes = 0,
          .idle_limit = record.idle_limit,
          .idle = std::max(Duration::zero(), now - record.last_used)};
}

// What a message with its description takes, about.
int64_t ListedBytes(const Record& record) {
  constexpr int64_t kForm = 64;
  constexpr int64_t kLength = 6;
  return kForm +
         static_cast<int64_t>(record.name.size() + record.label.size()) +
         kLength * record.sequence->form().layers;
}

void Finish(const Sequence& sequence, Description& description) {
  description.lengths = sequence.Lengths();
  description.page_bytes = sequence.PageBytes();
}

OwnerFigures FiguresFrom(const OwnerRecords& owner) {
  const OwnerRecords::Counts& counts = owner.counts();
  return {.owner = owner.owner(),
          .bytes = owner.budget()->held(),
          .pages = owner.budget()->pages(),
          .sequences = static_cast<int64_t>(owner.size()),
          .created = counts.created,
          .forks = counts.forks,
          .appended_keys = counts.appended_keys,
          .deletions = counts.deletions,
          .evictions = counts.evictions,
          .expirations = counts.expirations};
}

}  // namespace

absl::StatusOr<Description> Store::Describe(absl::string_view owner,
                                            absl::string_view name,
                                            Time now) const {
  Description description;
  std::shared_ptr<const Sequence> sequence;
  {
    const std::lock_guard lock(mutex_);
    const OwnerRecords* of = FindOwner(owner);
    if (of == nullptr) return NotFound(name, std::nullopt);
    const Record* record = of->Find(name);
    if (record == nullptr) return NotFound(name, of->gone().Find(name));
    description = Begin(*record, now);
    sequence = record->sequence;
  }
  Finish(*sequence, description);
  return description;
}

absl::StatusOr<ListedPage> Store::List(absl::string_view owner,
                                       const ListQuery& query, Time now) const {
  if (query.most < 1 || query.most > kMostListed) {
    return absl::InvalidArgumentError(absl::StrCat(
        "most: ", query.most, " (expected: 1 to ", kMostListed, ")"));
  }
  ListedPage page;
  std::vector<std::shared_ptr<const Sequence>> sequences;
  {
    const std::lock_guard lock(mutex_);
    const OwnerRecords* of = FindOwner(owner);
    if (of == nullptr) return page;
    std::vector<const Record*> records = of->List(query);
    if (static_cast<int64_t>(records.size()) > query.most) {
      records.pop_back();
      page.next = ListPlace{records.back()->label, records.back()->name};
    }
    int64_t bytes = 0;
    for (const Record* record : records) {
      bytes += ListedBytes(*record);
      if (bytes > kMostListedBytes && !sequences.empty()) {
        page.next =
            ListPlace{page.sequences.back().label, page.sequences.back().name};
        break;
      }
      page.sequences.push_back(Begin(*record, now));
      sequences.push_back(record->sequence);
    }
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    Finish(*sequences[i], page.sequences[i]);
  }
  return page;
}

std::vector<OwnerFigures> Store::Figures() const {
  const std::lock_guard lock(mutex_);
  std::vector<OwnerFigures> figures;
  figures.reserve(owners_.size());
  for (const auto& [name, owner] : owners_) {
    figures.push_back(FiguresFrom(owner));
  }
  return figures;
}

OwnerFigures Store::FiguresOf(absl::string_view owner) const {
  const std::lock_guard lock(mutex_);
  const OwnerRecords* of = FindOwner(owner);
  if (of != nullptr) return FiguresFrom(*of);
  OwnerFigures none;
  none.owner.assign(owner.data(), owner.size());
  return none;
}

}  // namespace attention::store
