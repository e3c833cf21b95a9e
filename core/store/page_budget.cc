#include "core/store/page_budget.h"

namespace attention::store {

bool PageBudget::ReserveHere(int64_t bytes) {
  int64_t held = held_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ - held) return false;
  } while (!held_.compare_exchange_weak(held, held + bytes,
                                        std::memory_order_relaxed));
  return true;
}

bool PageBudget::Reserve(int64_t bytes, int64_t pages) {
  if (!ReserveHere(bytes)) return false;
  if (above_ != nullptr && !above_->Reserve(bytes, pages)) {
    held_.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  pages_.fetch_add(pages, std::memory_order_relaxed);
  return true;
}

void PageBudget::Take(int64_t bytes) {
  held_.fetch_add(bytes, std::memory_order_relaxed);
  if (above_ != nullptr) above_->Take(bytes);
}

void PageBudget::Release(int64_t bytes, int64_t pages) {
  held_.fetch_sub(bytes, std::memory_order_relaxed);
  pages_.fetch_sub(pages, std::memory_order_relaxed);
  if (above_ != nullptr) above_->Release(bytes, pages);
}

}  // namespace attention::store
