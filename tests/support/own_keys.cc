#include "tests/support/own_keys.h"

#include <utility>

#include "core/batch_entries.h"
#include "core/validate_parts.h"
#include "tests/support/owned_problem.h"
#include "tests/support/packed_entries.h"

namespace attention::test {
namespace {

// One entry of (B, H, L, D), (B, L, D) or (L, D) with four extents.
TensorView OneOf(const TensorView& all, int64_t entry) {
  TensorView view = internal::Widen(all);
  internal::TakeEntry(entry, view);
  return view;
}

// The same of rows' scales, with three.
std::optional<TensorView> OneOf(std::optional<TensorView> scales,
                                int64_t entry) {
  if (!scales) return scales;
  scales->shape.push_back(1);
  scales->strides.push_back(0);
  scales = OneOf(*scales, entry);
  scales->shape.pop_back();
  scales->strides.pop_back();
  return scales;
}

AttentionProblem WithOwnKeysOfPacked(const AttentionProblem& whole,
                                     int64_t page) {
  AttentionProblem apart = whole;
  apart.key_starts.reset();
  apart.key_value.clear();
  for (int64_t entry = 0; entry < EntriesOf(whole); ++entry) {
    AttentionProblem alone = EntryOf(whole, entry);
    if (page > 0) SplitIntoBlocks(alone, page);
    apart.key_value_of_entries.push_back(std::move(alone.key_value));
  }
  return apart;
}

}  // namespace

AttentionProblem WithOwnKeys(const AttentionProblem& whole, int64_t page) {
  if (whole.query_starts) return WithOwnKeysOfPacked(whole, page);
  AttentionProblem apart = whole;
  apart.key_value.clear();
  const int64_t batch = whole.query.rank() == 2 ? 1 : whole.query.shape[0];
  for (int64_t entry = 0; entry < batch; ++entry) {
    KeyValueBlocks& blocks = apart.key_value_of_entries.emplace_back();
    for (const KeyValueBlock& block : whole.key_value) {
      blocks.push_back({OneOf(block.key, entry), OneOf(block.value, entry),
                        OneOf(block.key_scale, entry),
                        OneOf(block.value_scale, entry), block.scales_checked});
    }
  }
  return apart;
}

}  // namespace attention::test
