#ifndef ATTENTION_CORE_STORE_SNAPSHOT_H_
#define ATTENTION_CORE_STORE_SNAPSHOT_H_

#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "core/problem.h"
#include "core/store/counted.h"
#include "core/store/page.h"
#include "core/store/page_layout.h"

namespace attention::store {

/// The keys and values that one layer of a sequence had at one moment. Whatever
/// becomes of the sequence, they stay as they are, in memory that stays held,
/// until the last copy of the snapshot is gone. Cheap to take and to copy.
class Snapshot {
 public:
  int64_t length() const { return length_; }  // keys

  /// The first keys of it, 0 to length().
  Snapshot First(int64_t keys) const { return {layout_, table_, keys}; }

  /// As one block of Blocks() that had all keys, without elements: for what
  /// asks for extents alone.
  KeyValueBlock Extents() const { return layout_.Views(nullptr, length_); }

  /// Whether rows could be appended behind these: what PageLayout::CheckRows()
  /// says of them.
  absl::Status CheckRows(const KeyValueBlock& rows) const {
    return layout_.CheckRows(rows).status();
  }

  /// Ready for AttentionProblem::key_value: views (1, Hkv, n, Dk) and (1, Hkv,
  /// n, Dv), with scales (1, Hkv, n) where the type has some, one block for
  /// each page; of a snapshot without keys one block with n = 0, because a
  /// problem takes its widths from there. They are good for as long as a copy
  /// of the snapshot is. Pages lie apart, so no two make one block.
  absl::InlinedVector<KeyValueBlock, 1> Blocks() const;
  /// One of them, 0 to PagesOf(length()) - 1, where a table of all is not
  /// needed: for narrow keys it takes more memory than they do.
  KeyValueBlock Block(int64_t page) const;

 private:
  friend class PageList;
  Snapshot(const PageLayout& layout, CountedPtr<const PageTable> table,
           int64_t length)
      : layout_(layout), table_(std::move(table)), length_(length) {}

  PageLayout layout_;
  CountedPtr<const PageTable> table_;
  int64_t length_;
};

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_SNAPSHOT_H_
