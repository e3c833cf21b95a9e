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
/// Dv), and of types that have scales those of keys and those of values, both
/// FP32 and (Hkv, kPageKeys); all at multiples of 64 bytes. What a kernel wants
/// packed changes this class alone.
class PageLayout {
 public:
  /// A form that has passed CheckForm().
  explicit PageLayout(const SequenceForm& form);

  /// Of one page; a multiple of 64.
  int64_t page_bytes() const { return page_bytes_; }

  /// Rows to be appended, checked: key (Hkv, n, Dk) and value (Hkv, n, Dv), or
  /// both with a first extent of 1, with any strides; of INT8 and FP8, and of
  /// no other type, both with scales of these shapes without the width. Gives
  /// n. INVALID_ARGUMENT naming key, value, key_scale or value_scale where
  /// type, shape or memory space are others, or a scale is none.
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
  /// with their scales, (1, Hkv, count), where the type has some. Rows of one
  /// head lie one behind the other. `page` may be null where nobody reads them.
  KeyValueBlock Views(const std::byte* page, int64_t count) const;

 private:
  // One of keys, values and scales: (heads, kPageKeys, width), scales of width
  // 1.
  struct Part {
    DataType type = DataType::kFloat32;
    int64_t width = 1;
    int64_t offset = 0;  // bytes
  };

  Part AddPart(DataType type, int64_t width);
  static TensorView View(const Part& part, int64_t heads, const std::byte* page,
                         int64_t count);
  // Calls visit(part of the page, its rows) until it says no; true where it
  // never does.
  template <typename Visit>
  bool VisitParts(const KeyValueBlock& rows, const Visit& visit) const;

  int64_t heads_;
  DataType type_;
  int64_t page_bytes_ = 0;
  // In this order in a page.
  Part key_;
  Part value_;
  Part key_scale_;  // these where the type has some
  Part value_scale_;
};

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_PAGE_LAYOUT_H_
