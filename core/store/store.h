#ifndef ATTENTION_CORE_STORE_STORE_H_
#define ATTENTION_CORE_STORE_STORE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/store/page_budget.h"
#include "core/store/records.h"
#include "core/store/sequence.h"

namespace attention::store {

/// Payload of a RESOURCE_EXHAUSTED that waiting does not help: what was asked
/// for needs more than the limit, whatever the others let go of.
inline constexpr char kNeverFits[] = "attention.NeverFits";

struct StoreOptions {
  /// Bytes of all sequences, at most: their pages, and what they take
  /// themselves.
  int64_t memory_limit = PageBudget::kUnlimited;
  /// Where memory is out, sequences go to make room: of the owner who holds
  /// most, the least recently used, so that nobody can drive out those who hold
  /// less. Never one that is in use, as its pages would stay held: where all of
  /// that owner's are, those of whom the room is for go. None go where all that
  /// may go would not suffice.
  bool evict = false;
  /// Of how many evicted and expired sequences of each owner it is remembered
  /// that they were there.
  size_t gone_names = 1024;
};

/// A sequence to be made.
struct NewSequence {
  SequenceForm form;
  std::string name = {};   // as CheckName(); empty: the store makes one
  std::string label = {};  // as CheckLabel()
  std::optional<Duration> idle_limit = {};  // above 0; absent: never expires
  bool claimed = false;  // by who makes it: Sequence::Claim()
  /// Keys that its layers are going to have, as Sequence::Create() takes them.
  /// It is not made where there is no room for them, and drives nobody out
  /// then.
  std::vector<int64_t> lengths = {};
};

/// A sequence that was made: in use as long as somebody has this.
struct Created {
  std::string name;
  std::shared_ptr<Sequence> sequence;
};

/// A fork to be made. What is absent is as in the sequence that is forked.
struct NewFork {
  std::optional<int64_t> length = {};  // the first keys of it, in every layer
  std::string name = {};               // empty: the store makes one
  std::optional<std::string> label = {};
  std::optional<Duration> idle_limit = {};
};

/// What a sequence is at the moment.
struct Description {
  std::string name;
  std::string label;
  SequenceForm form;
  std::vector<int64_t> lengths;  // keys of each layer
  int64_t page_bytes = 0;        // shared pages included
  std::optional<Duration> idle_limit;
  Duration idle = {};  // since it was last used
};

struct ListedPage {
  std::vector<Description> sequences;
  std::optional<ListPlace> next;  // where to go on; absent at the end
};

/// What one owner has, and has done since the start.
struct OwnerFigures {
  std::string owner;
  int64_t bytes = 0;  // that count against the limit; snapshots' among them
  int64_t pages = 0;
  int64_t sequences = 0;
  int64_t created = 0;  // forks among them
  int64_t forks = 0;
  int64_t appended_keys = 0;
  int64_t deletions = 0;
  int64_t evictions = 0;
  int64_t expirations = 0;
};

/// What came of Expire().
struct Expired {
  int64_t sequences = 0;
  bool more = false;  // whether to call again at once
};

/// Sequences by name, each of an owner, an opaque text: to other owners it is
/// not there, and they may use its name for their own. Safe for several threads
/// at once; what is done under its one lock takes microseconds, whatever it
/// holds, but for choosing who goes to make room, which looks at their pages;
/// pages are freed outside. Those who need room wait for who makes some. Time
/// is what callers say it is. Owners are counted for ever: let there be a list
/// of them somewhere.
///
/// Where a sequence is not there: NOT_FOUND, which says whether it was evicted
/// or has expired. Where there is no memory, or no more than others hold:
/// RESOURCE_EXHAUSTED, which says how much is held, and by whom most; with
/// kNeverFits where that makes no difference.
class Store {
 public:
  /// Sequences on a page of a list, bytes that a message of them takes, about,
  /// where they are more than one, and sequences made at once, at most.
  static constexpr int64_t kMostListed = 1000;
  static constexpr int64_t kMostListedBytes = 32 << 10;
  static constexpr size_t kMostCreated = 256;

  explicit Store(const StoreOptions& options);

  /// What such a sequence, of a valid form, counts when it has the keys of its
  /// lengths.
  static int64_t BytesOf(const NewSequence& wanted);

  /// Makes a sequence. INVALID_ARGUMENT as CheckForm(),
  /// CheckName(), CheckLabel(); ALREADY_EXISTS for a name that is taken.
  absl::StatusOr<Created> Create(absl::string_view owner,
                                 const NewSequence& wanted, Time now);
  /// Makes all of them or none, and gives their names. Errors as above, those
  /// that are about one of them after sequences[n]; INVALID_ARGUMENT for more
  /// than kMostCreated, too.
  absl::StatusOr<std::vector<std::string>> Create(
      absl::string_view owner, absl::Span<const NewSequence> wanted, Time now);

  /// It counts as use, and the sequence is in use until the last one who has it
  /// from here lets go: meanwhile it is not evicted and does not expire. Who
  /// keeps a snapshot longer than the sequence keeps memory that is not seen to
  /// be in use.
  absl::StatusOr<std::shared_ptr<Sequence>> Find(absl::string_view owner,
                                                 absl::string_view name,
                                                 Time now);

  /// As Sequence::Append, with room made for it where that is allowed. `only`,
  /// where it is not null: NOT_FOUND where the name is another sequence's by
  /// now.
  absl::StatusOr<Appended> Append(absl::string_view owner,
                                  absl::string_view name, int64_t layer,
                                  std::optional<int64_t> position,
                                  const KeyValueBlock& rows, Time now,
                                  const Sequence* only = nullptr);
  /// As Sequence::Truncate.
  absl::Status Truncate(absl::string_view owner, absl::string_view name,
                        int64_t length, Time now);
  /// As Sequence::Fork; gives the fork's name. It is the same owner's. Errors
  /// as Create(), where its name is at fault they begin with new_name.
  absl::StatusOr<std::string> Fork(absl::string_view owner,
                                   absl::string_view name, const NewFork& fork,
                                   Time now);

  /// Does not count as use, nor does List().
  absl::StatusOr<Description> Describe(absl::string_view owner,
                                       absl::string_view name, Time now) const;
  /// INVALID_ARGUMENT where `most` is out of its range.
  absl::StatusOr<ListedPage> List(absl::string_view owner,
                                  const ListQuery& query, Time now) const;

  absl::Status Delete(absl::string_view owner, absl::string_view name,
                      const Sequence* only = nullptr);
  /// Deletes those whose names begin with `prefix`, kMostCreated at most.
  /// `only`, where it is not null: none of them where it is not among them by
  /// now.
  void DeleteAll(absl::string_view owner, absl::string_view prefix,
                 const Sequence* only = nullptr);

  /// Deletes what has been idle for too long and is not in use, having looked
  /// at no more than `most` sequences. To be called about once a second.
  Expired Expire(Time now, int64_t most = 256);

  /// Of all owners who ever had a sequence, in order of their names.
  std::vector<OwnerFigures> Figures() const;
  /// Of one, zeros where it never had a sequence.
  OwnerFigures FiguresOf(absl::string_view owner) const;
  /// What all hold together.
  const PageBudget& budget() const { return *budget_; }

 private:
  struct Entry {
    std::shared_ptr<Sequence> sequence;
    OwnerRecords* owner = nullptr;  // stays as long as the store
  };

  // With mutex_ held.
  OwnerRecords& OwnerOf(absl::string_view owner);
  const OwnerRecords* FindOwner(absl::string_view owner) const;
  absl::StatusOr<Record*> FindRecord(absl::string_view owner,
                                     absl::string_view name,
                                     const Sequence* only = nullptr);
  Record Take(Record& record);
  Record& AddRecord(OwnerRecords& owner, Record record);

  absl::StatusOr<Entry> Use(absl::string_view owner, absl::string_view name,
                            Time now, const Sequence* only = nullptr);
  absl::Status MakeRoomFor(OwnerRecords& owner, size_t sequences,
                           int64_t bytes);
  absl::StatusOr<std::vector<Record>> MakeRecords(
      OwnerRecords& owner, absl::Span<const NewSequence> wanted, Time now);
  absl::Status AddAll(OwnerRecords& owner, std::vector<Record> records,
                      bool numbered);
  absl::StatusOr<std::vector<Created>> CreateAll(
      absl::string_view owner, absl::Span<const NewSequence> wanted, Time now,
      bool numbered);

  struct Room {
    // What would be held at least if it were done and nothing else were there.
    int64_t least = 0;
    Growth more;  // what it takes beside all that is there
    // A file's keys, which other owners do not leave for at once where they
    // would not one by one: as if held already.
    bool ahead = false;
  };
  // Tries, and where memory is out makes room and tries again; but what needs
  // more than the limit, or than others can give, drives nobody out.
  absl::Status WithRoom(OwnerRecords& asker, absl::FunctionRef<Room()> needed,
                        absl::FunctionRef<absl::Status()> attempt);
  // `made`: rooms_made_ before it was tried. True where there may be room now.
  bool MakeRoom(OwnerRecords& asker, const Room& room, int64_t made);
  // With mutex_ held.
  std::vector<Record*> WhoGoes(const OwnerRecords& asker, const Room& room);
  absl::Status Exhausted(const absl::Status& status, bool fits) const;

  const StoreOptions options_;
  const std::shared_ptr<PageBudget> budget_;
  // Held by one who makes room, until its pages are free: else the next one,
  // who does not see them yet, would make the same room again. Before mutex_.
  std::mutex making_room_;
  std::atomic<int64_t> rooms_made_{0};
  mutable std::mutex mutex_;
  std::map<std::string, OwnerRecords, std::less<>> owners_;
  IdleQueue idle_;
};

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_STORE_H_
