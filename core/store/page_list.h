#ifndef ATTENTION_CORE_STORE_PAGE_LIST_H_
#define ATTENTION_CORE_STORE_PAGE_LIST_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/problem.h"
#include "core/store/counted.h"
#include "core/store/given_back.h"
#include "core/store/page.h"
#include "core/store/page_budget.h"
#include "core/store/page_layout.h"
#include "core/store/snapshot.h"

namespace attention::store {

/// What an append came to.
struct Appended {
  int64_t length = 0;    // keys of the layer afterwards
  int64_t new_keys = 0;  // those that were not there before
  /// What the layer had then, up to the last of the rows: not what stood behind
  /// them already.
  Snapshot read;
};

/// The keys and values of one layer of a sequence: pages and a length. Safe for
/// several threads at once. Those who change it wait for each other; whoever
/// takes a snapshot waits for a few instructions of anybody, and nobody waits
/// for whoever has one.
class PageList {
 public:
  /// Keys of a list, at most.
  static constexpr int64_t kMostKeys = int64_t{1} << 40;

  /// Empty. Pages are counted in `budget`.
  PageList(const PageLayout& layout, std::shared_ptr<PageBudget> budget);
  PageList(const PageList&) = delete;
  PageList& operator=(const PageList&) = delete;

  /// As Sequence::Append.
  absl::StatusOr<Appended> Append(std::optional<int64_t> position,
                                  const KeyValueBlock& rows);
  /// Of what is there now. What Close() was given, afterwards.
  absl::StatusOr<Snapshot> TakeSnapshot() const;
  int64_t length() const;  // 0 once it is closed
  /// What its table counts, which may have more places than pages.
  int64_t table_bytes() const;
  /// Whether somebody changes it at the moment, for whom others would wait.
  bool IsChanging() const;

  /// Keeps the first `length` (>= 0) keys, or all where there are not so many.
  /// RESOURCE_EXHAUSTED, and nothing has changed, where the system has no
  /// memory for a table; the budget always has, as the larger one goes.
  absl::Status Truncate(int64_t length);

  /// The first `length` keys of a snapshot, whose pages are shared, into an
  /// empty list that nobody knows yet. RESOURCE_EXHAUSTED without memory for a
  /// table.
  absl::Status Share(const Snapshot& snapshot, int64_t length);

  /// An empty list that nobody knows yet gets a table for `keys` keys, which
  /// does not grow until there are more. RESOURCE_EXHAUSTED without memory.
  absl::Status MakePlaces(int64_t keys);

  /// What an append that has found no memory takes if it is tried again; with
  /// `alone`, as if nobody else had its last page.
  Growth GrowthWith(std::optional<int64_t> position, int64_t keys,
                    bool alone = false) const;
  /// Adds what is given back where this one ends.
  void AddTo(GivenBack& given) const;

  /// Lets go of the pages, for good: all calls return `reason` from now on, one
  /// that is appending as well. Waits for nobody. The first reason stays.
  void Close(const absl::Status& reason);

 private:
  struct State {
    CountedPtr<PageTable> table;  // null where there was never a page
    int64_t length = 0;
  };
  // What an append is about to write: keys length ... end - 1.
  struct Change {
    CountedPtr<PageTable> table;
    int64_t length = 0;  // keys that are there
    int64_t end = 0;     // the length afterwards
  };

  absl::StatusOr<State> CurrentState() const;
  absl::StatusOr<CountedPtr<PageTable>> NewTable(const PageTable* other,
                                                 int64_t pages,
                                                 int64_t places) const;
  absl::Status CheckTaken(const State& state, int64_t position,
                          const KeyValueBlock& rows, int64_t count) const;
  absl::Status Prepare(Change& change);
  absl::Status TakeMemory(Change& change, bool keeps_tail);
  bool ClaimTail(const Change& change);
  absl::Status AddPages(PageTable& table, int64_t first, int64_t end);
  void Write(const Change& change, const KeyValueBlock& rows, int64_t position);
  absl::Status Publish(CountedPtr<PageTable> table, int64_t length);

  const PageLayout layout_;
  const std::shared_ptr<PageBudget> budget_;

  // Held by one who changes state_, from first to last.
  mutable std::mutex changing_;
  mutable std::mutex mutex_;  // guards what follows; a few instructions at most
  State state_;
  absl::Status closed_;
};

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_PAGE_LIST_H_
