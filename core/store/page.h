#ifndef ATTENTION_CORE_STORE_PAGE_H_
#define ATTENTION_CORE_STORE_PAGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/page_numbers.h"
#include "core/store/counted.h"
#include "core/store/page_budget.h"
#include "core/store/page_pool.h"

namespace attention::store {

/// The memory of kPageKeys keys and values, counted in a budget until the last
/// holder lets go. Several sequences may hold one page, and all of them may be
/// about to append to it: a row is given to one of them, once, and is never
/// written again while somebody could read it.
class Page : public Counted {
 public:
  /// What a page takes in a budget beyond its bytes: this object.
  static constexpr int64_t kBytesBeside = 80;
  static int64_t CountedBytes(int64_t bytes) { return bytes + kBytesBeside; }

  /// Uninitialised, at a multiple of 64, of which `bytes` (> 0) must be one,
  /// too. CountedBytes(bytes) of the budget, and a page, must have been
  /// reserved: they are the page's from now on, and are released with it. Null
  /// where there is no memory; then they still are the caller's.
  static CountedPtr<Page> Create(int64_t bytes,
                                 std::shared_ptr<PageBudget> budget);
  ~Page();

  std::byte* data() { return memory_.data; }
  const std::byte* data() const { return memory_.data; }
  int64_t counted_bytes() const { return CountedBytes(bytes_); }

  /// What it is known by while nobody writes other rows where somebody could
  /// read some (core/page_numbers.h).
  uint64_t number() const { return number_; }

  /// Gives rows row ... row + count - 1 to the caller, who alone may write
  /// them. False where anyone has had row `row`, or rows before it are nobody's
  /// yet.
  bool Claim(int64_t row, int64_t count);
  /// Whether Claim() of rows from `row` on would be true now.
  bool IsClaimable(int64_t row) const {
    return claimed_.load(std::memory_order_relaxed) == row;
  }
  /// Of rows that the caller has had and not written: they are nobody's again,
  /// unless others have had rows behind them since.
  void GiveBack(int64_t row, int64_t count);
  /// The same, whoever has had them. For a page that nobody else holds, of
  /// which nobody reads those rows. Where somebody has had them, the page has
  /// another number from now on.
  void Reclaim(int64_t row, int64_t count);

 private:
  Page(const PagePool::Memory& memory, int64_t bytes,
       std::shared_ptr<PageBudget> budget)
      : memory_(memory),
        bytes_(bytes),
        budget_(std::move(budget)),
        number_(NewPageNumber()) {}

  const PagePool::Memory memory_;
  const int64_t bytes_;
  const std::shared_ptr<PageBudget> budget_;
  uint64_t number_;                  // changed while nobody else holds it
  std::atomic<int64_t> claimed_{0};  // rows before this one are somebody's
};

/// A list of pages. Snapshots read those before their length while the one
/// appender fills places behind it, which no snapshot reads; a place that a
/// snapshot may read is not changed, its sequence takes another table.
class PageTable : public Counted {
 public:
  /// What a table of so many places takes in a budget: this object, and a
  /// pointer for each.
  static int64_t CountedBytes(int64_t places) {
    constexpr int64_t kBytesBeside = 64;
    return kBytesBeside +
           places * static_cast<int64_t>(sizeof(CountedPtr<Page>));
  }

  /// Without pages. Its bytes are `own`, CountedBytes(places), until the last
  /// holder lets go. Null where there is no memory.
  static CountedPtr<PageTable> Create(int64_t places, Reservation own);
  /// The first `pages` of another table, which they share from now on, and
  /// room for others up to `places`; else as Create().
  static CountedPtr<PageTable> CopyOf(const PageTable& other, int64_t pages,
                                      int64_t places, Reservation own);

  int64_t places() const { return places_; }
  int64_t counted_bytes() const { return own_.bytes(); }
  Page& operator[](int64_t index) const { return *pages_[Index(index)]; }
  const CountedPtr<Page>& at(int64_t index) const {
    return pages_[Index(index)];
  }
  void Set(int64_t index, CountedPtr<Page> page) {
    pages_[Index(index)] = std::move(page);
  }
  /// From `first` to before `end`, no pages any more.
  void Clear(int64_t first, int64_t end);

 private:
  PageTable(std::unique_ptr<CountedPtr<Page>[]> pages, int64_t places,
            Reservation own)
      : own_(std::move(own)), pages_(std::move(pages)), places_(places) {}
  static size_t Index(int64_t index) { return static_cast<size_t>(index); }

  const Reservation own_;
  const std::unique_ptr<CountedPtr<Page>[]> pages_;
  const int64_t places_;
};

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_PAGE_H_
