#include "core/store/page.h"

#include <new>

namespace attention::store {

CountedPtr<Page> Page::Create(int64_t bytes,
                              std::shared_ptr<PageBudget> budget) {
  const PagePool::Memory memory = PagePool::OfProcess().Take(bytes);
  if (memory.data == nullptr) return {};
  CountedPtr<Page> page(new (std::nothrow)
                            Page(memory, bytes, std::move(budget)));
  if (page == nullptr) PagePool::OfProcess().Return(memory);
  return page;
}

Page::~Page() {
  EndPageNumber(number_);
  PagePool::OfProcess().Return(memory_);
  budget_->Release(CountedBytes(bytes_), 1);
}

bool Page::Claim(int64_t row, int64_t count) {
  return claimed_.compare_exchange_strong(row, row + count,
                                          std::memory_order_relaxed);
}

void Page::GiveBack(int64_t row, int64_t count) {
  int64_t claimed = row + count;
  claimed_.compare_exchange_strong(claimed, row, std::memory_order_relaxed);
}

void Page::Reclaim(int64_t row, int64_t count) {
  if (claimed_.load(std::memory_order_relaxed) > row) {
    EndPageNumber(std::exchange(number_, NewPageNumber()));
  }
  claimed_.store(row + count, std::memory_order_relaxed);
}

CountedPtr<PageTable> PageTable::Create(int64_t places, Reservation own) {
  std::unique_ptr<CountedPtr<Page>[]> pages(
      new (std::nothrow) CountedPtr<Page>[Index(places)]);
  if (pages == nullptr) return {};
  return CountedPtr<PageTable>(
      new (std::nothrow) PageTable(std::move(pages), places, std::move(own)));
}

CountedPtr<PageTable> PageTable::CopyOf(const PageTable& other, int64_t pages,
                                        int64_t places, Reservation own) {
  CountedPtr<PageTable> table = Create(places, std::move(own));
  if (table == nullptr) return table;
  for (int64_t i = 0; i < pages; ++i) {
    table->pages_[Index(i)] = other.pages_[Index(i)];
  }
  return table;
}

void PageTable::Clear(int64_t first, int64_t end) {
  for (int64_t i = first; i < end; ++i) Set(i, {});
}

}  // namespace attention::store
