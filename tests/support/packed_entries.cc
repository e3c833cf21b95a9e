#include "tests/support/packed_entries.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/element.h"
#include "tests/support/owned_problem.h"
#include "tests/support/tolerance.h"

namespace attention::test {
namespace {

struct Range {
  int64_t begin;
  int64_t end;

  int64_t count() const { return end - begin; }
};

Range RangeOf(const std::optional<TensorView>& starts, int64_t n) {
  const auto at = [&starts](int64_t entry) {
    return static_cast<int64_t>(
        LoadElement(starts->type, ElementAddress(*starts, {entry})));
  };
  return {at(n), at(n + 1)};
}

// Some tokens of (tokens, H, ...) as (1, H, tokens, ...).
TensorView HeadsFirst(const TensorView& packed, const Range& tokens) {
  TensorView view = Slice(packed, 0, tokens.begin, tokens.end);
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  view.shape.insert(view.shape.begin(), 1);
  view.strides.insert(view.strides.begin(), 0);
  return view;
}

// Some elements of (H, tokens) as (1, H, tokens).
TensorView OfTokens(const TensorView& packed, const Range& tokens) {
  TensorView view = Slice(packed, 1, tokens.begin, tokens.end);
  view.shape.insert(view.shape.begin(), 1);
  view.strides.insert(view.strides.begin(), 0);
  return view;
}

// Row `n` of a tensor of so many extents, of which the first is the entries'.
void TakeRow(std::optional<TensorView>& view, int rank, int64_t n) {
  if (view && view->rank() == rank) *view = Slice(*view, 0, n, n + 1);
}

// (1, H, Lq, Lk) of what lies entry after entry.
Tensor WeightsOfEntry(const AttentionProblem& packed, int64_t n,
                      const Tensor& all) {
  const int64_t heads = packed.query.shape[1];
  const auto count = [&packed](int64_t entry) {
    return RangeOf(packed.query_starts, entry).count() *
           RangeOf(packed.key_starts, entry).count();
  };
  int64_t begin = 0;
  for (int64_t entry = 0; entry < n; ++entry) begin += heads * count(entry);
  const TensorView flat = Slice(all.view(), 0, begin, begin + heads * count(n));
  return Materialize(
      ContiguousView(flat.type,
                     {1, heads, RangeOf(packed.query_starts, n).count(),
                      RangeOf(packed.key_starts, n).count()},
                     flat.data));
}

// Whether the places of top_k that an entry has no keys for are unused.
::testing::AssertionResult AreUnused(const AttentionProblem& packed, int64_t n,
                                     const Results& results) {
  const Range rows = RangeOf(packed.query_starts, n);
  const int64_t k = *packed.wanted.top_k;
  const int64_t used = std::min(k, RangeOf(packed.key_starts, n).count());
  const auto all_are = [&](const std::optional<Tensor>& top, double unused) {
    const TensorView tokens = Slice(top->view(), 0, rows.begin, rows.end);
    const std::vector<double> found =
        Materialize(Slice(tokens, 2, used, k)).ToDoubles();
    return std::all_of(found.begin(), found.end(),
                       [unused](double x) { return x == unused; });
  };
  if (all_are(results.top_k_indices, -1) && all_are(results.top_k_weights, 0)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "top_k has more than all keys";
}

}  // namespace

int64_t EntriesOf(const AttentionProblem& packed) {
  return packed.query_starts->shape[0] - 1;
}

AttentionProblem EntryOf(const AttentionProblem& packed, int64_t n) {
  const Range keys = RangeOf(packed.key_starts, n);
  AttentionProblem entry = packed;
  entry.query_starts.reset();
  entry.key_starts.reset();
  entry.query = HeadsFirst(packed.query, RangeOf(packed.query_starts, n));
  KeyValueBlock& block = entry.key_value[0];
  block.key = HeadsFirst(block.key, keys);
  block.value = HeadsFirst(block.value, keys);
  if (block.key_scale) {
    block.key_scale = HeadsFirst(*block.key_scale, keys);
    block.value_scale = HeadsFirst(*block.value_scale, keys);
  }
  TakeRow(entry.masks.valid_lens, 1, n);
  TakeRow(entry.masks.query_offsets, 1, n);
  TakeRow(entry.alibi_slopes, 2, n);
  TakeRow(entry.sinks, 2, n);
  if (std::optional<int64_t>& k = entry.wanted.top_k) {
    k = std::min(*k, keys.count());
    if (*k == 0) k.reset();
  }
  return entry;
}

Results ResultsOfEntry(const AttentionProblem& packed, int64_t n,
                       const Results& results) {
  const Range rows = RangeOf(packed.query_starts, n);
  const Range keys = RangeOf(packed.key_starts, n);
  Results entry;
  entry.output = Materialize(HeadsFirst(results.output.view(), rows));
  if (results.weights) {
    entry.weights = WeightsOfEntry(packed, n, *results.weights);
  }
  if (results.scores) {
    entry.scores = WeightsOfEntry(packed, n, *results.scores);
  }
  if (results.lse) {
    entry.lse = Materialize(OfTokens(results.lse->view(), rows));
  }
  if (results.key_weights) {
    entry.key_weights =
        Materialize(OfTokens(results.key_weights->view(), keys));
  }
  if (results.top_k_indices && keys.count() > 0) {
    const auto full = [&](const Tensor& top) {
      const TensorView view = HeadsFirst(top.view(), rows);
      return Materialize(
          Slice(view, 3, 0, std::min(view.shape[3], keys.count())));
    };
    entry.top_k_indices = full(*results.top_k_indices);
    entry.top_k_weights = full(*results.top_k_weights);
  }
  return entry;
}

std::vector<Expected> ComputeExpectedOfEntries(const AttentionProblem& packed) {
  std::vector<Expected> expected;
  expected.reserve(static_cast<size_t>(EntriesOf(packed)));
  for (int64_t n = 0; n < EntriesOf(packed); ++n) {
    expected.push_back(ComputeExpected(EntryOf(packed, n), n));
  }
  return expected;
}

::testing::AssertionResult MatchesEntries(const AttentionProblem& packed,
                                          const std::vector<Expected>& expected,
                                          const Results& results) {
  for (int64_t n = 0; n < EntriesOf(packed); ++n) {
    auto check = Matches(EntryOf(packed, n), expected[static_cast<size_t>(n)],
                         ResultsOfEntry(packed, n, results));
    if (check && packed.wanted.top_k) check = AreUnused(packed, n, results);
    if (!check) return check << " (in entry " << n << ")";
  }
  return ::testing::AssertionSuccess();
}

}  // namespace attention::test
