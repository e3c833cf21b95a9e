#ifndef ATTENTION_CORE_BATCH_ENTRIES_H_
#define ATTENTION_CORE_BATCH_ENTRIES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/problem.h"
#include "core/validate.h"

/// A part of ValidateBatch(): a batch as the problems of its entries.
namespace attention::internal {

/// The entries of a batch whose rows are packed, or whose entries have keys of
/// their own: each a problem with four extents and B = 1, of views into the
/// batch.
class BatchEntries {
 public:
  /// Checks what concerns the batch as a whole. `batch` outlives the entries.
  static absl::StatusOr<BatchEntries> Of(const AttentionProblem& batch);

  int64_t count() const { return count_; }
  /// Whether tokens come first in its results (T, Hq, D), or they have the
  /// query's rank.
  bool is_packed() const { return !query_starts_.empty(); }

  /// One entry's keys and values.
  KeyValueBlocks KeysOf(int64_t entry) const;
  /// One entry's problem, checked. An error says which entry it is about. top_k
  /// is left out: it may be more than an entry's keys. Entry 0 comes first:
  /// sinks that all entries share are checked with it alone. Of() has looked at
  /// the elements of attend_mask and of packed scales.
  absl::StatusOr<ValidatedProblem> Validate(int64_t entry) const;

 private:
  explicit BatchEntries(const AttentionProblem& batch);

  // Of packed rows, in batch_packed.cc.
  absl::Status ReadPacked();
  absl::Status CheckWhole() const;

  absl::Status ReadRectangle();
  absl::Status CheckOptions() const;
  void TakeQuery(int64_t entry, AttentionProblem& problem) const;
  absl::Status TakeMasks(int64_t entry, AttentionProblem& problem) const;

  const AttentionProblem& batch_;
  /// The options that all entries share; no keys.
  AttentionProblem shared_;
  int64_t count_ = 0;
  std::vector<int64_t> query_starts_;  // empty where rows are not packed
  std::vector<int64_t> key_starts_;    // empty where keys are not
};

/// Tokens `first` to `last` of (tokens, heads, width) as (1, heads, tokens,
/// width).
template <typename View>
View Tokens(const View& packed, int64_t first, int64_t last) {
  View entry = packed;
  if (packed.data != nullptr) entry.data += first * packed.strides[0];
  entry.shape = {1, packed.shape[1], last - first, packed.shape[2]};
  entry.strides = {0, packed.strides[1], packed.strides[0], packed.strides[2]};
  return entry;
}

/// Of packed keys and values those of tokens `first` to `last`.
KeyValueBlock KeysOfTokens(const KeyValueBlock& all, int64_t first,
                           int64_t last);

/// Of a view whose first extent is the entries': the one of `entry`.
template <typename View>
void TakeEntry(int64_t entry, View& view) {
  if (view.data != nullptr) view.data += entry * view.strides[0];
  view.shape[0] = 1;
}

}  // namespace attention::internal

#endif  // ATTENTION_CORE_BATCH_ENTRIES_H_
