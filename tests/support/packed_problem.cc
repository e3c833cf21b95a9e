#include "tests/support/packed_problem.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "core/element.h"

namespace attention::test {
namespace {

// (1, H, L, D) of each entry as (tokens, H, D).
TensorView PackRows(const std::vector<TensorView>& entries, Layout layout,
                    OwnedProblem& to) {
  Shape shape = {0, entries[0].shape[1], entries[0].shape[3]};
  std::vector<std::pair<size_t, int64_t>> tokens;  // entry, its row
  for (size_t n = 0; n < entries.size(); ++n) {
    for (int64_t row = 0; row < entries[n].shape[2]; ++row) {
      tokens.emplace_back(n, row);
    }
  }
  shape[0] = static_cast<int64_t>(tokens.size());
  return to.Add(
      entries[0].type, shape, layout, [&](absl::Span<const int64_t> index) {
        const auto [n, row] = tokens[static_cast<size_t>(index[0])];
        const Shape at = {0, index[1], row, index[2]};
        return LoadElement(entries[n].type, ElementAddress(entries[n], at));
      });
}

// (1, H, L) of each entry as (tokens, H).
std::optional<TensorView> PackScales(
    const std::vector<OwnedProblem>& entries,
    std::optional<TensorView> KeyValueBlock::*scales, Layout layout,
    OwnedProblem& to) {
  std::vector<TensorView> rows;
  for (const OwnedProblem& entry : entries) {
    std::optional<TensorView> of_entry = entry.problem.key_value[0].*scales;
    if (!of_entry) return std::nullopt;
    of_entry->shape.push_back(1);
    of_entry->strides.push_back(0);
    rows.push_back(*std::move(of_entry));
  }
  TensorView packed = PackRows(rows, layout, to);
  packed.shape.pop_back();
  packed.strides.pop_back();
  return packed;
}

// (1) or (1, H) of each entry as (B) or (B, H); as it is where it is (H).
using Member = std::function<std::optional<TensorView>&(AttentionProblem&)>;
void PackMember(std::vector<OwnedProblem>& entries, bool per_head,
                const Member& member, OwnedProblem& to) {
  const std::optional<TensorView>& first = member(entries[0].problem);
  if (!first) return;
  if (per_head && first->rank() == 1) {
    for (OwnedProblem& entry : entries) member(entry.problem) = first;
    member(to.problem) = first;
    return;
  }
  Shape shape = first->shape;
  shape[0] = static_cast<int64_t>(entries.size());
  member(to.problem) =
      to.Add(first->type, shape, Layout::kRowMajor,
             [&](absl::Span<const int64_t> index) {
               const TensorView& view =
                   *member(entries[static_cast<size_t>(index[0])].problem);
               Shape at(index.begin(), index.end());
               at[0] = 0;
               return LoadElement(view.type, ElementAddress(view, at));
             });
}

TensorView PackStarts(const std::vector<EntryLengths>& lengths,
                      int64_t EntryLengths::*length, DataType type,
                      OwnedProblem& to) {
  std::vector<int64_t> starts = {0};
  for (const EntryLengths& entry : lengths) {
    starts.push_back(starts.back() + entry.*length);
  }
  return to.Add(
      type, {static_cast<int64_t>(starts.size())}, Layout::kRowMajor,
      [&](absl::Span<const int64_t> index) {
        return static_cast<double>(starts[static_cast<size_t>(index[0])]);
      });
}

}  // namespace

void MakePackable(ProblemSpec& spec) {
  spec.rank = 4;
  spec.batch = 1;
  spec.keys_per_block = 0;
  spec.attend_mask = MaskExtents::kNone;
  spec.bias = MaskExtents::kNone;
  if (spec.valid_lens == LengthsShape::kPerRow) {
    spec.valid_lens = LengthsShape::kPerBatch;
  }
}

PackedProblem MakePackedProblem(ProblemSpec spec,
                                const std::vector<EntryLengths>& lengths,
                                uint64_t seed) {
  PackedProblem all;
  std::vector<TensorView> queries;
  std::vector<TensorView> keys;
  std::vector<TensorView> values;
  int64_t most_keys = 0;
  spec.batch = 1;
  for (const auto& [query_length, key_length] : lengths) {
    spec.query_length = query_length;
    spec.key_length = key_length;
    most_keys = std::max(most_keys, key_length);
    OwnedProblem& entry = all.entries.emplace_back(MakeProblem(spec, seed++));
    entry.problem.scoring = all.entries[0].problem.scoring;
    queries.push_back(entry.problem.query);
    keys.push_back(entry.problem.key_value[0].key);
    values.push_back(entry.problem.key_value[0].value);
  }
  AttentionProblem& packed = all.packed.problem;
  packed = all.entries[0].problem;
  packed.wanted.top_k = spec.wanted.top_k;
  if (std::optional<int64_t>& k = packed.wanted.top_k) {
    k = std::min(*k, most_keys);
    if (*k == 0) k.reset();
  }
  packed.query = PackRows(queries, spec.layout, all.packed);
  packed.key_value[0] = {
      .key = PackRows(keys, spec.layout, all.packed),
      .value = PackRows(values, spec.layout, all.packed),
      .key_scale = PackScales(all.entries, &KeyValueBlock::key_scale,
                              spec.layout, all.packed),
      .value_scale = PackScales(all.entries, &KeyValueBlock::value_scale,
                                spec.layout, all.packed)};
  packed.query_starts =
      PackStarts(lengths, &EntryLengths::queries, spec.starts_type, all.packed);
  packed.key_starts =
      PackStarts(lengths, &EntryLengths::keys, spec.starts_type, all.packed);
  const auto pack = [&all](bool per_head, const Member& member) {
    PackMember(all.entries, per_head, member, all.packed);
  };
  pack(
      false, [](auto& p) -> auto& { return p.masks.valid_lens; });
  pack(
      false, [](auto& p) -> auto& { return p.masks.query_offsets; });
  pack(
      true, [](auto& p) -> auto& { return p.alibi_slopes; });
  pack(
      true, [](auto& p) -> auto& { return p.sinks; });
  return all;
}

}  // namespace attention::test
