#include "core/store/snapshot.h"

#include <algorithm>

namespace attention::store {

absl::InlinedVector<KeyValueBlock, 1> Snapshot::Blocks() const {
  absl::InlinedVector<KeyValueBlock, 1> blocks;
  if (length_ == 0) {
    blocks.push_back(layout_.Views(nullptr, 0));
    return blocks;
  }
  const int64_t pages = PagesOf(length_);
  blocks.reserve(static_cast<size_t>(pages));
  for (int64_t i = 0; i < pages; ++i) {
    const Page& page = (*table_)[i];
    blocks.push_back(layout_.Views(
        page.data(), std::min(kPageKeys, length_ - i * kPageKeys)));
    blocks.back().page = page.number();
  }
  return blocks;
}

}  // namespace attention::store
