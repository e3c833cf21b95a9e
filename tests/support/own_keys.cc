#include "tests/support/own_keys.h"

#include "core/batch_entries.h"
#include "core/validate_parts.h"

namespace attention::test {
namespace {

// One entry of (B, H, L, D), (B, L, D) or (L, D) with four extents.
TensorView EntryOf(const TensorView& all, int64_t entry) {
  TensorView view = internal::Widen(all);
  internal::TakeEntry(entry, view);
  return view;
}

}  // namespace

AttentionProblem WithOwnKeys(const AttentionProblem& whole) {
  AttentionProblem apart = whole;
  apart.key_value.clear();
  const int64_t batch = whole.query.rank() == 2 ? 1 : whole.query.shape[0];
  for (int64_t entry = 0; entry < batch; ++entry) {
    KeyValueBlocks& blocks = apart.key_value_of_entries.emplace_back();
    for (const KeyValueBlock& block : whole.key_value) {
      blocks.push_back(
          {EntryOf(block.key, entry), EntryOf(block.value, entry)});
    }
  }
  return apart;
}

}  // namespace attention::test
