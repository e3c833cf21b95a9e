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
  for (int64_t i = 0; i < pages; ++i) blocks.push_back(Block(i));
  return blocks;
}

KeyValueBlock Snapshot::Block(int64_t page) const {
  const Page& of = (*table_)[page];
  KeyValueBlock block =
      layout_.Views(of.data(), std::min(kPageKeys, length_ - page * kPageKeys));
  block.page = of.number();
  return block;
}

}  // namespace attention::store
