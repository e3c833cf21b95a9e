#include "core/store/page_list.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attention::store {
namespace {

absl::Status CheckPlace(int64_t position, int64_t count, int64_t length) {
  if (position < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("position: ", position, " (expected: 0 or more)"));
  }
  if (position > length) {
    return absl::OutOfRangeError(
        absl::StrCat("position: ", position, " leaves a gap, there are ",
                     length, " keys (expected: ", length, " or less)"));
  }
  if (count > PageList::kMostKeys - position) {
    return absl::OutOfRangeError(absl::StrCat(
        "key: ", count, " rows at position ", position, " (expected: at most ",
        PageList::kMostKeys, " keys together)"));
  }
  return absl::OkStatus();
}

absl::Status NoTable(int64_t pages, absl::string_view why = "") {
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for a table of ", pages, " pages", why));
}

// Of a table for so many pages that had some places.
int64_t PlacesFor(int64_t pages, int64_t places) {
  return pages > places ? std::max(pages, 2 * places) : places;
}

// Of the last page of so many keys, the rows that an append writes.
int64_t RowsOfTail(int64_t length, int64_t end) {
  return std::min(kPageKeys - length % kPageKeys, end - length);
}

// Calls visit(page, first row of it, rows, first key) for each page that keys
// begin ... end - 1 lie in.
template <typename Visit>
void VisitPages(int64_t begin, int64_t end, const Visit& visit) {
  while (begin < end) {
    const int64_t row = begin % kPageKeys;
    const int64_t count = std::min(kPageKeys - row, end - begin);
    visit(begin / kPageKeys, row, count, begin);
    begin += count;
  }
}

}  // namespace

PageList::PageList(const PageLayout& layout, std::shared_ptr<PageBudget> budget)
    : layout_(layout), budget_(std::move(budget)) {}

absl::StatusOr<PageList::State> PageList::CurrentState() const {
  const std::lock_guard lock(mutex_);
  if (!closed_.ok()) return closed_;
  return state_;
}

absl::StatusOr<Snapshot> PageList::TakeSnapshot() const {
  absl::StatusOr<State> state = CurrentState();
  if (!state.ok()) return state.status();
  return Snapshot(layout_, std::move(state->table), state->length);
}

int64_t PageList::length() const {
  const std::lock_guard lock(mutex_);
  return state_.length;
}

bool PageList::IsChanging() const {
  const std::unique_lock changing(changing_, std::try_to_lock);
  return !changing.owns_lock();
}

absl::StatusOr<Appended> PageList::Append(std::optional<int64_t> position,
                                          const KeyValueBlock& rows) {
  const absl::StatusOr<int64_t> count = layout_.CheckRows(rows);
  if (!count.ok()) return count.status();
  const std::lock_guard changing(changing_);
  absl::StatusOr<State> state = CurrentState();
  if (!state.ok()) return state.status();
  const int64_t begin = position.value_or(state->length);
  absl::Status status = CheckPlace(begin, *count, state->length);
  if (!status.ok()) return status;
  const int64_t taken = std::min(*count, state->length - begin);
  status = CheckTaken(*state, begin, rows, taken);
  if (!status.ok()) return status;
  const int64_t end = begin + *count;
  if (taken == *count) {
    return Appended{state->length, 0,
                    Snapshot(layout_, std::move(state->table), end)};
  }

  Change change{std::move(state->table), state->length, end};
  status = Prepare(change);
  if (!status.ok()) return status;
  Write(change, rows, begin);
  Snapshot read(layout_, change.table, end);
  status = Publish(std::move(change.table), change.end);
  if (!status.ok()) return status;
  return Appended{end, *count - taken, std::move(read)};
}

// With the first `pages` of another, which may be null where they are 0.
absl::StatusOr<CountedPtr<PageTable>> PageList::NewTable(const PageTable* other,
                                                         int64_t pages,
                                                         int64_t places) const {
  const int64_t bytes = PageTable::CountedBytes(places);
  if (!budget_->Reserve(bytes, 0)) {
    return NoTable(places, ": the limit is reached");
  }
  Reservation own(budget_, bytes);
  CountedPtr<PageTable> table =
      other == nullptr
          ? PageTable::Create(places, std::move(own))
          : PageTable::CopyOf(*other, pages, places, std::move(own));
  if (table == nullptr) return NoTable(places);
  return table;
}

absl::Status PageList::CheckTaken(const State& state, int64_t position,
                                  const KeyValueBlock& rows,
                                  int64_t count) const {
  bool same = true;
  VisitPages(position, position + count,
             [&](int64_t page, int64_t row, int64_t keys, int64_t key) {
               same = same &&
                      layout_.Equal(rows, key - position, keys,
                                    std::as_const((*state.table)[page]).data(),
                                    row);
             });
  if (same) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("position: ", position,
                                         " has other keys or values, there ",
                                         "are ", state.length, " keys"));
}

// All that can fail, before anything is written.
absl::Status PageList::Prepare(Change& change) {
  const bool keeps_tail = ClaimTail(change);
  absl::Status status = TakeMemory(change, keeps_tail);
  const int64_t row = change.length % kPageKeys;
  if (!status.ok() && keeps_tail && row > 0) {
    // Who appends next, this one or a fork, needs no copy of the page then.
    Page& tail = (*change.table)[change.length / kPageKeys];
    tail.GiveBack(row, RowsOfTail(change.length, change.end));
  }
  return status;
}

absl::Status PageList::TakeMemory(Change& change, bool keeps_tail) {
  const int64_t pages = PagesOf(change.length);
  const int64_t pages_after = PagesOf(change.end);
  const int64_t places = change.table == nullptr ? 0 : change.table->places();
  if (!keeps_tail || pages_after > places) {
    // The snapshots of the old table go on with it.
    auto table =
        NewTable(change.table.get(), pages, PlacesFor(pages_after, places));
    if (!table.ok()) return table.status();
    change.table = *std::move(table);
  }
  // The page of a tail that is to be copied is a new one, too.
  const int64_t first_new = keeps_tail ? pages : pages - 1;
  if (keeps_tail) return AddPages(*change.table, first_new, pages_after);
  const CountedPtr<Page> tail = change.table->at(first_new);
  absl::Status status = AddPages(*change.table, first_new, pages_after);
  if (!status.ok()) return status;
  const int64_t rows = change.length % kPageKeys;
  Page& copy = (*change.table)[first_new];
  layout_.Copy(std::as_const(*tail).data(), copy.data(), rows);
  copy.Reclaim(0, rows + RowsOfTail(change.length, change.end));
  return absl::OkStatus();
}

// True where the last page's free rows, as many as are needed, may be written:
// no other sequence has begun to, and nobody reads there what this one has cut
// off.
bool PageList::ClaimTail(const Change& change) {
  const int64_t row = change.length % kPageKeys;
  if (row == 0) return true;
  const int64_t count = RowsOfTail(change.length, change.end);
  Page& tail = (*change.table)[change.length / kPageKeys];
  if (tail.Claim(row, count)) return true;
  // With the lock there is no new snapshot; the table's holders are state_ and
  // `change`, the page's holder is the table. Once it is closed, state_ holds
  // none, and a second holder is a snapshot.
  const std::lock_guard lock(mutex_);
  if (!closed_.ok()) return false;
  if (!change.table->HeldByAtMost(2) || !tail.HeldByAtMost(1)) return false;
  tail.Reclaim(row, count);
  return true;
}

// All of them or none.
absl::Status PageList::AddPages(PageTable& table, int64_t first, int64_t end) {
  const int64_t bytes = layout_.page_bytes();
  const int64_t counted = Page::CountedBytes(bytes);
  const int64_t count = end - first;
  const auto error = [&](const auto&... why) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for ", count, " pages of ", bytes, " bytes", why...));
  };
  if (count > budget_->limit() / counted ||  // the product could overflow
      !budget_->Reserve(count * counted, count)) {
    return error(": the limit is reached");
  }
  for (int64_t i = first; i < end; ++i) {
    CountedPtr<Page> page = Page::Create(bytes, budget_);
    if (page == nullptr) {
      budget_->Release((end - i) * counted, end - i);
      table.Clear(first, i);
      return error();
    }
    table.Set(i, std::move(page));
  }
  return absl::OkStatus();
}

void PageList::Write(const Change& change, const KeyValueBlock& rows,
                     int64_t position) {
  VisitPages(change.length, change.end,
             [&](int64_t index, int64_t row, int64_t keys, int64_t key) {
               Page& page = (*change.table)[index];
               if (row == 0) page.Reclaim(0, keys);
               layout_.Write(rows, key - position, keys, page.data(), row);
             });
}

absl::Status PageList::Publish(CountedPtr<PageTable> table, int64_t length) {
  const std::lock_guard lock(mutex_);
  if (!closed_.ok()) return closed_;
  std::swap(state_.table, table);  // what was there ends after the lock
  state_.length = length;
  return absl::OkStatus();
}

absl::Status PageList::Truncate(int64_t length) {
  const std::lock_guard changing(changing_);
  absl::StatusOr<State> state = CurrentState();
  if (!state.ok()) return state.status();
  if (length >= state->length) return absl::OkStatus();
  const int64_t pages = PagesOf(length);
  CountedPtr<PageTable> table = state->table;
  if (pages < PagesOf(state->length)) {
    // Keys are let go of where the limit is reached, too.
    const int64_t bytes = PageTable::CountedBytes(pages);
    budget_->Take(bytes);
    table = PageTable::CopyOf(*state->table, pages, pages,
                              Reservation(budget_, bytes));
    if (table == nullptr) return NoTable(pages);
  }
  return Publish(std::move(table), length);
}

absl::Status PageList::Share(const Snapshot& snapshot, int64_t length) {
  if (length == 0) return absl::OkStatus();
  const int64_t pages = PagesOf(length);
  auto table = NewTable(snapshot.table_.get(), pages, pages);
  if (!table.ok()) return table.status();
  return Publish(*std::move(table), length);
}

absl::Status PageList::MakePlaces(int64_t keys) {
  if (keys == 0) return absl::OkStatus();
  auto table = NewTable(nullptr, 0, PagesOf(keys));
  if (!table.ok()) return table.status();
  return Publish(*std::move(table), 0);
}

// As Prepare().
Growth PageList::GrowthWith(std::optional<int64_t> position, int64_t keys,
                            bool alone) const {
  const std::lock_guard lock(mutex_);
  const int64_t begin =
      std::min(position.value_or(state_.length), state_.length);
  const int64_t end = begin + std::min(keys, kMostKeys);
  if (end <= state_.length) return {};
  const PageTable* const table = state_.table.get();
  const int64_t pages = PagesOf(state_.length);
  const int64_t pages_after = PagesOf(end);
  Growth growth;
  const int64_t row = state_.length % kPageKeys;
  if (row != 0 && !alone) {
    const Page& tail = (*table)[pages - 1];
    const bool writes = tail.IsClaimable(row) ||
                        (table->HeldByAtMost(1) && tail.HeldByAtMost(1));
    if (!writes) growth.copied = &tail;
  }
  const int64_t places = table == nullptr ? 0 : table->places();
  const int64_t counted = Page::CountedBytes(layout_.page_bytes());
  const bool copies = growth.copied != nullptr;
  // The old table goes when the new one has taken its place.
  const int64_t of_table =
      copies || pages_after > places
          ? PageTable::CountedBytes(PlacesFor(pages_after, places))
          : 0;
  const int64_t new_pages = pages_after - pages + (copies ? 1 : 0);
  growth.bytes = new_pages > (PageBudget::kUnlimited - of_table) / counted
                     ? PageBudget::kUnlimited
                     : of_table + new_pages * counted;
  return growth;
}

int64_t PageList::table_bytes() const {
  const std::lock_guard lock(mutex_);
  return state_.table == nullptr ? 0 : state_.table->counted_bytes();
}

void PageList::AddTo(GivenBack& given) const {
  const absl::StatusOr<State> state = CurrentState();
  if (!state.ok() || state->table == nullptr) return;
  given.AddTable(*state->table, PagesOf(state->length));
}

void PageList::Close(const absl::Status& reason) {
  State dropped;  // ends after the lock
  const std::lock_guard lock(mutex_);
  if (!closed_.ok()) return;
  closed_ = reason;
  std::swap(state_, dropped);
}

}  // namespace attention::store
