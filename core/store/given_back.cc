#include "core/store/given_back.h"

namespace attention::store {

void GivenBack::AddTable(const PageTable& table, int64_t pages) {
  if (!table.HeldByAtMost(2)) return;
  bytes_ += table.counted_bytes();
  for (int64_t i = 0; i < pages; ++i) {
    const Page& page = table[i];
    const bool goes =
        page.HeldByAtMost(1) || page.HeldByAtMost(++holders_[&page]);
    if (goes) bytes_ += page.counted_bytes();
  }
}

}  // namespace attention::store
