#ifndef ATTENTION_CORE_STORE_PAGE_LAYOUT_H_
#define ATTENTION_CORE_STORE_PAGE_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "core/problem.h"
#include "core/store/sequence_form.h"

namespace attention::store {

/// Keys of a page, a power of two. Fewer: more blocks for a kernel to walk
/// over, and a larger table to fork. More: more memory that a short sequence
/// takes in vain, and more to copy where a fork goes on. With 64 a page of 8
/// heads of width 128 in BF16 is 256 KiB, a whole number of a kernel's tiles of
/// keys, and 100,000 keys have 1,563 pages.
inline constexpr int64_t kPageKeys = 64;

/// Pages that `keys` keys take.
constexpr int64_t PagesOf(int64_t keys) {
  return (keys + kPageKeys - 1) / kPageKeys;
}

/// Where a page's keys and values lie: the only place that knows. Keys
/// row-major as (Hkv, kPageKeys, Dk), behind them values as (Hkv, kPageKeys,
/// Dv), both at multiples of 64 bytes. Types with a scale for each row, and
/// what a kernel wants packed, change this class alone.
class PageLayout {
 public:
  /// A form that has passed CheckForm().
  explicit PageLayout(const SequenceForm& form);

  /// Of one page; a multiple of 64.
  int64_t page_bytes() const { return value_offset_ + value_bytes_; }

  /// Rows to be appended, checked: key (Hkv, n, Dk) and value (Hkv, n, Dv), or
  /// both with a first extent of 1, with any strides. Gives n. INVALID_ARGUMENT
  /// naming key or value where type, shape or memory space are others.
  absl::StatusOr<int64_t> CheckRows(const KeyValueBlock& rows) const;

  /// Of rows that have passed CheckRows(), those from `first` on become rows
  /// `row` ... of the page; `count` of them.
  void Write(const KeyValueBlock& rows, int64_t first, int64_t count,
             std::byte* page, int64_t row) const;
  /// Whether the page has just these bits there.
  bool Equal(const KeyValueBlock& rows, int64_t first, int64_t count,
             const std::byte* page, int64_t row) const;
  /// The first `count` rows of one page become those of another.
  void Copy(const std::byte* from, std::byte* to, int64_t count) const;

  /// The first `count` rows as (1, Hkv, count, Dk) and (1, Hkv, count, Dv),
  /// whose rows of one head lie one behind the other. `page` may be null where
  /// `count` is 0.
  KeyValueBlock Views(const std::byte* page, int64_t count) const;

 private:
  TensorView View(const std::byte* first, int64_t count, int64_t width) const;

  int64_t heads_;
  int64_t key_width_;
  int64_t value_width_;
  DataType type_;
  int64_t value_offset_;  // bytes
  int64_t value_bytes_;
};

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_PAGE_LAYOUT_H_
