#ifndef ATTENTION_CORE_CPU_BLOCK_ROWS_H_
#define ATTENTION_CORE_CPU_BLOCK_ROWS_H_

#include <algorithm>
#include <cstdint>

#include "core/cpu/plan.h"
#include "core/validate.h"

namespace attention::cpu {

/// Which rows the blocks of a plan are of: some that follow one another in
/// their kv group, head after head, and all read the keys of one key/value
/// head.
class BlockRows {
 public:
  /// 0 <= index < plan.blocks().
  BlockRows(const ValidatedProblem& problem, const Plan& plan, int64_t index);

  /// Some of them: `count` rows from row `first` on.
  BlockRows Some(int64_t first, int64_t count) const {
    BlockRows rows = *this;
    rows.first_row_ += first;
    rows.count_ = count;
    return rows;
  }

  int64_t index() const { return index_; }
  int64_t batch() const { return batch_; }
  int64_t kv_head() const { return kv_head_; }
  int64_t count() const { return count_; }
  /// Whether they are the first of their kv group.
  bool begin_group() const { return first_row_ == 0; }

  // Of a row of the block, from 0.
  int64_t HeadOf(int64_t row) const {
    return first_head_ + (first_row_ + row) / query_length_;
  }
  int64_t QueryOf(int64_t row) const {
    return (first_row_ + row) % query_length_;
  }
  /// Calls visit(row, head, query) for each row, in order. Without a division
  /// for each, which is felt where a row has few keys.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    int64_t head = HeadOf(0);
    int64_t query = QueryOf(0);
    for (int64_t row = 0; row < count_; ++row) {
      visit(row, head, query);
      if (++query == query_length_) {
        query = 0;
        ++head;
      }
    }
  }

 private:
  int64_t index_;
  int64_t query_length_;
  int64_t batch_;
  int64_t first_head_;
  int64_t kv_head_;
  int64_t first_row_;  // in the kv group
  int64_t count_;
};

/// Has `all`, begin >= end where it is empty so far, span a range, too.
inline void Include(const KeyRange& range, KeyRange& all) {
  if (range.begin == range.end) return;
  all.begin = std::min(all.begin, range.begin);
  all.end = std::max(all.end, range.end);
}

/// Spans the keys that lengths, causal rule and window leave to some of the
/// rows; begin >= end where they leave none.
KeyRange KeysOfRows(const ValidatedProblem& problem, const BlockRows& rows);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_BLOCK_ROWS_H_
