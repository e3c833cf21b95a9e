#ifndef ATTENTION_CORE_STORE_RECORDS_H_
#define ATTENTION_CORE_STORE_RECORDS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/store/names.h"
#include "core/store/page_budget.h"
#include "core/store/sequence.h"

namespace attention::store {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
using Duration = Clock::duration;

class OwnerRecords;

/// What a store knows of a sequence.
struct Record {
  std::string name;
  std::string label;
  std::shared_ptr<Sequence> sequence;
  /// How long it may be unused; it then expires.
  std::optional<Duration> idle_limit;
  Time last_used;

  // Of who keeps it.
  OwnerRecords* of = nullptr;
  std::list<Record*>::iterator by_use = {};
  Time listed_due = {};  // not above Due()

  /// When it expires; never, the end of time, without an idle limit.
  Time Due() const;
  /// Whether anybody beside the store has the sequence. With the store's lock
  /// nobody new can get it.
  bool IsInUse() const { return sequence.use_count() > 1; }
};

/// A place in a list: behind the sequence of this label and name.
struct ListPlace {
  std::string label;
  std::string name;
};

/// Which sequences to list, and how many.
struct ListQuery {
  std::string label;
  /// Labels that begin with `label`, all where it is empty; or just those that
  /// are equal.
  enum class Match : uint8_t { kPrefix, kEqual } match = Match::kPrefix;
  std::optional<ListPlace> after = {};  // where the last page ended
  int64_t most = 100;                   // 1 to Store::kMostListed
};

/// The sequences of one owner. Every call but List(), WithPrefix() and Next()
/// takes about as long however many there are. Not safe for several threads at
/// once.
class OwnerRecords {
 public:
  /// What has been done since the start. Kept by who does it.
  struct Counts {
    int64_t created = 0;  // forks among them
    int64_t forks = 0;
    int64_t deletions = 0;
    int64_t evictions = 0;
    int64_t expirations = 0;
    std::atomic<int64_t> appended_keys{0};  // from any thread
  };

  OwnerRecords(std::string owner, std::shared_ptr<PageBudget> budget,
               size_t gone_names)
      : owner_(std::move(owner)),
        budget_(std::move(budget)),
        gone_(gone_names) {}

  const std::string& owner() const { return owner_; }
  const std::shared_ptr<PageBudget>& budget() const { return budget_; }
  size_t size() const { return by_name_.size(); }
  Counts& counts() { return counts_; }
  const Counts& counts() const { return counts_; }
  GoneNames& gone() { return gone_; }
  const GoneNames& gone() const { return gone_; }

  /// Null where there is none.
  Record* Find(absl::string_view name);
  const Record* Find(absl::string_view name) const;
  /// Its name must not be there. It is the most recently used. Without memory
  /// nothing has changed.
  Record& Add(Record record);
  /// It is the most recently used now.
  void Use(Record& record, Time now);
  /// Takes it out of here.
  Record Take(Record& record);

  /// Goes over the sequences, the least recently used first. Good until one of
  /// them is used or taken, or another one added.
  struct Search {
    std::list<Record*>::iterator next;
    size_t left;
  };
  Search FromLeastRecentlyUsed() { return {by_use_.begin(), by_use_.size()}; }
  /// The next one that is not in use, or null. Those in use that come before it
  /// are the most recently used from now on, so that the next search does not
  /// pass them again.
  Record* Next(Search& search);

  /// In order of labels and, of one label, of names; one more than the query's
  /// `most`, where there are so many.
  std::vector<const Record*> List(const ListQuery& query) const;

  /// Those whose names begin with `prefix`, of many the first `most`.
  std::vector<Record*> WithPrefix(absl::string_view prefix, size_t most);

 private:
  using LabelAndName = std::pair<absl::string_view, absl::string_view>;

  const std::string owner_;
  const std::shared_ptr<PageBudget> budget_;
  Counts counts_;
  GoneNames gone_;
  std::map<std::string, Record, std::less<>> by_name_;
  std::map<LabelAndName, const Record*> by_label_;  // views of the records' own
  std::list<Record*> by_use_;  // the least recently used first
};

/// All sequences that may expire, in the order in which they will, unless they
/// are used. Use is not told to it: a sequence is listed where it would have
/// expired once, and put back when that time comes.
class IdleQueue {
 public:
  void Add(Record& record);
  void Remove(Record& record);
  /// The first one whose time has come, or may have: null where there is none.
  /// Where it was used since, or is in use, it is put back, and `expired` is
  /// false.
  Record* Next(Time now, bool& expired);

 private:
  std::set<std::pair<Time, Record*>> due_;
};

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_RECORDS_H_
