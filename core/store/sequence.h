#ifndef ATTENTION_CORE_STORE_SEQUENCE_H_
#define ATTENTION_CORE_STORE_SEQUENCE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/problem.h"
#include "core/store/given_back.h"
#include "core/store/page_budget.h"
#include "core/store/page_layout.h"
#include "core/store/page_list.h"
#include "core/store/sequence_form.h"
#include "core/store/snapshot.h"

namespace attention::store {

/// Keys and values that stay between requests: of each layer a list of pages,
/// to which keys are appended, and of which readers take snapshots. Safe for
/// several threads at once. Changes of one layer wait for each other; readers
/// wait for nobody, and nobody for them.
///
/// A failed call leaves everything as it was, but where it says otherwise. Once
/// closed, all calls return the reason.
class Sequence {
 public:
  /// Without keys. What it takes itself, and `more_bytes` of the caller's, are
  /// counted in `budget`, as its pages will be. `lengths`, where it is not
  /// empty, is how many keys each layer is going to have: its table has places
  /// for them from the start. INVALID_ARGUMENT as CheckForm(),
  /// RESOURCE_EXHAUSTED without memory.
  static absl::StatusOr<std::shared_ptr<Sequence>> Create(
      const SequenceForm& form, const std::shared_ptr<PageBudget>& budget,
      int64_t more_bytes = 0, absl::Span<const int64_t> lengths = {});

  /// What a sequence of a valid form takes itself, without keys.
  static int64_t OwnBytes(const SequenceForm& form,
                          absl::Span<const int64_t> lengths = {});

  /// What one that was created with these counts when it has such lengths.
  static int64_t BytesOf(const SequenceForm& form,
                         absl::Span<const int64_t> lengths,
                         int64_t more_bytes = 0);

  const SequenceForm& form() const { return form_; }

  /// Puts `rows`, key (Hkv, n, Dk) and value (Hkv, n, Dv), n >= 0, at a
  /// position; without one, behind the last key. They are copied. Positions
  /// that are taken must have the same bits, and the rest is appended, so that
  /// who has lost an answer may repeat the call. All rows or none:
  ///   INVALID_ARGUMENT    layer, position or rows that cannot be, whatever is
  ///                       there
  ///   OUT_OF_RANGE        a gap before the position
  ///   ABORTED             other bits at a taken position; it says the length
  ///   RESOURCE_EXHAUSTED  no memory, or none left of the budget
  absl::StatusOr<Appended> Append(int64_t layer,
                                  std::optional<int64_t> position,
                                  const KeyValueBlock& rows);

  /// Whether an append to that layer would wait for another one, which may take
  /// seconds: for those who must not. It may be otherwise a moment later. False
  /// for a layer that is not there.
  bool IsChanging(int64_t layer) const;

  /// What a layer has now. INVALID_ARGUMENT for a layer that is not there.
  absl::StatusOr<Snapshot> TakeSnapshot(int64_t layer) const;
  /// Of every layer, one after the other.
  absl::StatusOr<std::vector<Snapshot>> TakeSnapshots() const;

  /// Keeps the first `length` keys of every layer; snapshots keep theirs.
  /// INVALID_ARGUMENT where it is negative, OUT_OF_RANGE where a layer has
  /// fewer, RESOURCE_EXHAUSTED without memory for a table of the pages that are
  /// left. After that some layers may have been cut: repeat it.
  absl::Status Truncate(int64_t length);

  /// Another sequence with the first `length` keys of every layer, or all that
  /// each has. Pages are shared; of the last one, whoever appends second makes
  /// itself a copy. A table of the pages is its own, and counts. Layers are
  /// taken one after the other. Errors as Truncate() and Create().
  absl::StatusOr<std::shared_ptr<Sequence>> Fork(std::optional<int64_t> length,
                                                 int64_t more_bytes = 0) const;

  /// Keys of every layer; 0 once it is closed.
  std::vector<int64_t> Lengths() const;
  /// Pages of all layers, those that are shared with others included.
  int64_t Pages() const;
  /// What these count in the budget.
  int64_t PageBytes() const;
  /// What this one counts, at least, while Append() puts `keys` rows there, and
  /// with a Fork().
  int64_t LeastBytesWith(int64_t layer, std::optional<int64_t> position,
                         int64_t keys) const;
  int64_t LeastBytesWithFork(std::optional<int64_t> length) const;
  /// What Append(), which has found no memory, takes if it is tried again, and
  /// what a Fork() takes; `alone` as for PageList::GrowthWith().
  Growth GrowthWith(int64_t layer, std::optional<int64_t> position,
                    int64_t keys, bool alone = false) const;
  Growth GrowthOfFork(std::optional<int64_t> length) const;
  /// Adds what is given back where this one ends.
  void AddTo(GivenBack& given) const;

  /// A mark for callers of which one at a time may use the sequence: false
  /// where another has it. Nothing here looks at it.
  bool Claim() { return !claimed_.exchange(true); }
  /// By who has it.
  void GiveBack() { claimed_ = false; }

  /// Lets go of all keys, for good: every call returns `reason`, which is no
  /// OK, from now on, one that is appending as well. The first reason stays.
  void Close(const absl::Status& reason);

 private:
  Sequence(const SequenceForm& form, const std::shared_ptr<PageBudget>& budget,
           Reservation own);
  int64_t LeastBytes() const;
  absl::Status CheckLayer(int64_t layer) const;
  absl::Status CheckLength(int64_t length, int64_t there) const;
  absl::Status CheckLengths(std::optional<int64_t> length) const;

  const SequenceForm form_;
  const PageLayout layout_;
  const std::shared_ptr<PageBudget> budget_;
  const Reservation own_;
  std::deque<PageList> layers_;  // never grows
  std::atomic<bool> claimed_{false};
};

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_SEQUENCE_H_
