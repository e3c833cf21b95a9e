#include "core/batch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/element.h"
#include "core/validate_parts.h"

namespace attention {
namespace {

using internal::FieldError;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// Where each entry starts, and where the last one ends.
absl::StatusOr<std::vector<int64_t>> ReadStarts(absl::string_view field,
                                                const TensorView& view,
                                                absl::string_view of,
                                                int64_t total) {
  if (absl::Status status = internal::CheckIntegers(field, view);
      !status.ok()) {
    return status;
  }
  if (view.rank() != 1 || view.shape[0] == 0) {
    return FieldError(field, absl::StrCat("shape ", ShapeToString(view.shape),
                                          " (expected one extent, of a number "
                                          "more than there are entries)"));
  }
  if (view.shape[0] - 1 > kMostPackedEntries) {
    return absl::ResourceExhaustedError(
        absl::StrCat(field, ": shape ", ShapeToString(view.shape), " has ",
                     view.shape[0] - 1, " entries (at most ",
                     kMostPackedEntries, " in a packed batch)"));
  }
  std::vector<int64_t> starts;
  starts.reserve(static_cast<size_t>(view.shape[0]));
  for (int64_t n = 0; n < view.shape[0]; ++n) {
    const int64_t start =
        LoadInteger(view.type, view.data + n * view.strides[0]);
    const int64_t least = n == 0 ? 0 : starts.back();
    if (start < least || (n == 0 && start != 0)) {
      return FieldError(
          field,
          absl::StrCat("element [", n, "] is ", start, " (expected ",
                       n == 0 ? "0, where entry 0 starts"
                              : absl::StrCat(least, " or more, where entry ",
                                             n - 1, " starts"),
                       ")"));
    }
    starts.push_back(start);
  }
  if (starts.back() != total) {
    return FieldError(
        field, absl::StrCat("the last element is ", starts.back(),
                            " (expected ", total, ", the length of ", of, ")"));
  }
  return starts;
}

absl::Status CheckPackedRank(absl::string_view field, const TensorView& view) {
  if (absl::Status status = internal::CheckView(field, view); !status.ok()) {
    return status;
  }
  if (view.rank() == 3) return absl::OkStatus();
  return FieldError(
      field,
      absl::StrCat("shape ", ShapeToString(view.shape), " has ", view.rank(),
                   " dimensions (expected 3 in a packed batch: tokens, heads, "
                   "width)"));
}

// Of a key or value `rows`, (tokens, heads, width): (tokens, heads).
absl::Status CheckPackedScales(absl::string_view field, const TensorView& rows,
                               const std::optional<TensorView>& scales) {
  if (!scales) return absl::OkStatus();
  if (absl::Status status = internal::CheckView(field, *scales); !status.ok()) {
    return status;
  }
  const Shape expected = {rows.shape[0], rows.shape[1]};
  if (scales->shape == expected) return absl::OkStatus();
  return FieldError(
      field, absl::StrCat("shape ", ShapeToString(scales->shape), " (expected ",
                          ShapeToString(expected), ", tokens and heads)"));
}

// Tokens `first` to `last` of (tokens, heads, width) as (1, heads, tokens,
// width).
template <typename View>
View Tokens(const View& packed, int64_t first, int64_t last) {
  View entry = packed;
  if (packed.data != nullptr) entry.data += first * packed.strides[0];
  entry.shape = {1, packed.shape[1], last - first, packed.shape[2]};
  entry.strides = {0, packed.strides[1], packed.strides[0], packed.strides[2]};
  return entry;
}

// The same of (tokens, heads), as (1, heads, tokens).
std::optional<TensorView> ScalesOfTokens(
    const std::optional<TensorView>& packed, int64_t first, int64_t last) {
  if (!packed) return std::nullopt;
  TensorView entry = *packed;
  if (packed->data != nullptr) entry.data += first * packed->strides[0];
  entry.shape = {1, packed->shape[1], last - first};
  entry.strides = {0, packed->strides[1], packed->strides[0]};
  return entry;
}

// Of a tensor of `rank` extents whose first is the entries': the one of
// `entry`. As it is where it is shared by all.
void TakeEntry(std::optional<TensorView>& view, int rank, int64_t entry) {
  if (!view || view->rank() != rank) return;
  view->data += entry * view->strides[0];
  view->shape[0] = 1;
}

// Of one extent, the entries'.
absl::Status CheckPerEntry(absl::string_view field,
                           const std::optional<TensorView>& view,
                           int64_t entries) {
  if (!view) return absl::OkStatus();
  absl::Status status = internal::CheckView(field, *view);
  if (!status.ok() || (view->rank() == 1 && view->shape[0] == entries)) {
    return status;
  }
  return FieldError(
      field, absl::StrCat("shape ", ShapeToString(view->shape), " (expected [",
                          entries, "], the entries of query_starts)"));
}

// Of two extents, the entries' and the heads'; of one it is shared by all.
absl::Status CheckPerHead(absl::string_view field,
                          const std::optional<TensorView>& view,
                          const ValidatedProblem& whole, int64_t entries) {
  if (!view) return absl::OkStatus();
  const Shape expected = {entries, whole.query_heads};
  absl::Status status = internal::CheckView(field, *view);
  if (!status.ok() || view->rank() == 1 || view->shape == expected) {
    return status;
  }
  return FieldError(field, absl::StrCat("shape ", ShapeToString(view->shape),
                                        " (expected [", whole.query_heads,
                                        "] or ", ShapeToString(expected), ")"));
}

// What is asked of a packed batch as a whole, but for its starts.
absl::Status CheckPacked(const AttentionProblem& problem) {
  if (!problem.query_starts) {
    return FieldError("query_starts", "missing beside key_starts");
  }
  if (!problem.key_starts) {
    return FieldError("key_starts", "missing beside query_starts");
  }
  absl::Status status = CheckPackedRank("query", problem.query);
  if (problem.key_value.size() != 1) {
    return FieldError("key", absl::StrCat(problem.key_value.size(),
                                          " blocks (expected 1 in a packed "
                                          "batch)"));
  }
  const auto& [key, value, key_scale, value_scale] = problem.key_value[0];
  status.Update(CheckPackedRank("key", key));
  status.Update(CheckPackedRank("value", value));
  if (status.ok()) {
    status.Update(CheckPackedScales("key_scale", key, key_scale));
    status.Update(CheckPackedScales("value_scale", value, value_scale));
  }
  for (const auto& [field, given] :
       {std::pair("attend_mask", problem.masks.attend_mask.has_value()),
        std::pair("bias", problem.masks.bias.has_value())}) {
    if (given) status.Update(FieldError(field, "is not for packed batches"));
  }
  return status;
}

// The problem with some of its tokens, and without options of entries.
AttentionProblem WithTokens(const AttentionProblem& packed, int64_t first_query,
                            int64_t last_query, int64_t first_key,
                            int64_t last_key) {
  AttentionProblem problem = packed;
  problem.query_starts.reset();
  problem.key_starts.reset();
  problem.query = Tokens(packed.query, first_query, last_query);
  const KeyValueBlock& all = packed.key_value[0];
  problem.key_value[0] = {Tokens(all.key, first_key, last_key),
                          Tokens(all.value, first_key, last_key),
                          ScalesOfTokens(all.key_scale, first_key, last_key),
                          ScalesOfTokens(all.value_scale, first_key, last_key)};
  return problem;
}

// Types, heads and widths: what would be wrong with every entry.
absl::StatusOr<ValidatedProblem> ValidateWhole(const AttentionProblem& packed) {
  const KeyValueBlock& all = packed.key_value[0];
  if (all.value.shape[0] != all.key.shape[0]) {
    return FieldError(
        "value",
        absl::StrCat("shape ", ShapeToString(all.value.shape), " has length ",
                     all.value.shape[0], ", key has ", all.key.shape[0]));
  }
  AttentionProblem whole =
      WithTokens(packed, 0, packed.query.shape[0], 0, all.key.shape[0]);
  whole.masks.valid_lens.reset();
  whole.masks.query_offsets.reset();
  for (std::optional<TensorView>* view : {&whole.alibi_slopes, &whole.sinks}) {
    if (*view && (*view)->rank() != 1) view->reset();
  }
  whole.wanted = {};
  return Validate(whole);
}

absl::Status OfEntry(const absl::Status& status, int64_t entry) {
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), " (in entry ", entry,
                                   " of the packed batch)"));
}

absl::StatusOr<ValidatedProblem> ValidateEntry(
    const AttentionProblem& packed, int64_t entry,
    const std::vector<int64_t>& queries, const std::vector<int64_t>& keys) {
  const auto n = static_cast<size_t>(entry);
  AttentionProblem problem =
      WithTokens(packed, queries[n], queries[n + 1], keys[n], keys[n + 1]);
  TakeEntry(problem.masks.valid_lens, 1, entry);
  TakeEntry(problem.masks.query_offsets, 1, entry);
  TakeEntry(problem.alibi_slopes, 2, entry);
  TakeEntry(problem.sinks, 2, entry);
  problem.wanted.top_k.reset();  // may be more than this entry's keys
  absl::StatusOr<ValidatedProblem> valid = Validate(problem);
  if (!valid.ok()) return OfEntry(valid.status(), entry);
  valid->is_packed = true;
  valid->packed_entry = entry;
  return valid;
}

// Adds a count of 0 or more of floats; saturates.
int64_t AddProduct(int64_t sum, int64_t a, int64_t b, int64_t c) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) ||
      __builtin_mul_overflow(product, c, &product) ||
      __builtin_add_overflow(sum, product, &sum)) {
    return kMost;
  }
  return sum;
}

// An entry with fewer keys has rows that are not full.
absl::Status SetTopK(int64_t top_k, const ValidatedProblem& whole,
                     ValidatedBatch& batch) {
  int64_t longest = 0;
  for (const ValidatedProblem& problem : batch.problems) {
    longest = std::max(longest, problem.key_length);
  }
  absl::Status status =
      internal::CheckTopK(top_k, longest, "keys of the longest entry");
  if (!status.ok()) return status;
  batch.top_k_shape = {whole.query_length, whole.query_heads, top_k};
  if (const auto count =
          ElementCount(batch.top_k_shape, ByteSize(DataType::kInt64));
      !count.ok()) {
    return FieldError("top_k", count.status().message());
  }
  for (ValidatedProblem& problem : batch.problems) {
    problem.wanted.top_k = top_k;
    problem.top_k_shape = problem.weights_shape;
    problem.top_k_shape.back() = top_k;
  }
  return absl::OkStatus();
}

absl::Status SetPackedShapes(const ValidatedProblem& whole,
                             ValidatedBatch& batch) {
  int64_t rows = 0;
  int64_t keys = 0;
  int64_t weights = 0;
  for (const ValidatedProblem& problem : batch.problems) {
    batch.begins.push_back({.row = rows, .weight = weights, .key = keys});
    rows += problem.query_length;
    keys += problem.key_length;
    weights = AddProduct(weights, problem.query_heads, problem.query_length,
                         problem.key_length);
  }
  batch.output_type = whole.query.type;
  batch.output_shape = {whole.query_length, whole.query_heads,
                        whole.value_width};
  batch.weights_shape = {weights};
  batch.lse_shape = {whole.query_heads, whole.query_length};
  batch.key_weights_shape = {whole.query_heads, whole.key_length};
  if (const auto count = ElementCount(batch.key_weights_shape, sizeof(float));
      !count.ok()) {
    return FieldError(
        "key", absl::StrCat("the key weights' ", count.status().message()));
  }
  if (const auto count = ElementCount(batch.weights_shape, sizeof(float));
      !count.ok()) {
    return FieldError("key",
                      absl::StrCat("the weights' ", count.status().message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<ValidatedBatch> ValidatePacked(const AttentionProblem& packed) {
  if (absl::Status status = CheckPacked(packed); !status.ok()) return status;
  const absl::StatusOr<ValidatedProblem> whole = ValidateWhole(packed);
  if (!whole.ok()) return whole.status();
  const auto queries = ReadStarts("query_starts", *packed.query_starts, "query",
                                  packed.query.shape[0]);
  if (!queries.ok()) return queries.status();
  const auto keys = ReadStarts("key_starts", *packed.key_starts, "key",
                               packed.key_value[0].key.shape[0]);
  if (!keys.ok()) return keys.status();
  if (keys->size() != queries->size()) {
    return FieldError(
        "key_starts",
        absl::StrCat("shape ", ShapeToString(packed.key_starts->shape),
                     ", query_starts has ",
                     ShapeToString(packed.query_starts->shape)));
  }
  const auto entries = static_cast<int64_t>(queries->size()) - 1;
  absl::Status status =
      CheckPerEntry("valid_lens", packed.masks.valid_lens, entries);
  status.Update(
      CheckPerEntry("query_offsets", packed.masks.query_offsets, entries));
  status.Update(
      CheckPerHead("alibi_slopes", packed.alibi_slopes, *whole, entries));
  status.Update(CheckPerHead("sinks", packed.sinks, *whole, entries));
  if (!status.ok()) return status;
  ValidatedBatch batch;
  batch.problems.reserve(static_cast<size_t>(entries));
  for (int64_t entry = 0; entry < entries; ++entry) {
    absl::StatusOr<ValidatedProblem> valid =
        ValidateEntry(packed, entry, *queries, *keys);
    if (!valid.ok()) return valid.status();
    batch.problems.push_back(*std::move(valid));
  }
  status = SetPackedShapes(*whole, batch);
  if (status.ok() && packed.wanted.top_k) {
    status = SetTopK(*packed.wanted.top_k, *whole, batch);
  }
  if (!status.ok()) return status;
  return batch;
}

}  // namespace

AttentionOutputs ValidatedBatch::OutputsOf(
    size_t index, const AttentionOutputs& results) const {
  const ValidatedProblem& problem = problems[index];
  if (!problem.is_packed) return results;
  const Begin& begin = begins[index];
  const int64_t last_row = begin.row + problem.query_length;
  constexpr int64_t kFloat = sizeof(float);
  AttentionOutputs outputs;
  outputs.output = Tokens(results.output, begin.row, last_row);
  const auto matrix = [&](const MutableTensorView& of) {
    return MutableContiguousView(
        DataType::kFloat32,
        {1, problem.query_heads, problem.query_length, problem.key_length},
        of.data + begin.weight * kFloat);
  };
  if (problem.wanted.weights) outputs.weights = matrix(results.weights);
  if (problem.wanted.scores) outputs.scores = matrix(results.scores);
  if (problem.wanted.top_k) {
    outputs.top_k_indices = Tokens(results.top_k_indices, begin.row, last_row);
    outputs.top_k_weights = Tokens(results.top_k_weights, begin.row, last_row);
  }
  // `count` from `first` on of (heads, all entries').
  const auto of_heads = [&](const MutableTensorView& of, int64_t first,
                            int64_t count) {
    MutableTensorView part = of;
    if (of.data != nullptr) part.data += first * of.strides[1];
    part.shape = {1, problem.query_heads, count};
    part.strides = {0, of.strides[0], of.strides[1]};
    return part;
  };
  if (problem.wanted.lse) {
    outputs.lse = of_heads(results.lse, begin.row, problem.query_length);
  }
  if (problem.wanted.key_weights) {
    outputs.key_weights =
        of_heads(results.key_weights, begin.key, problem.key_length);
  }
  return outputs;
}

int64_t ValidatedBatch::ResultBytes() const {
  int64_t bytes = 0;
  for (const ValidatedProblem& problem : problems) {
    bytes = AddProduct(bytes, problem.ResultBytes(), 1, 1);
  }
  return bytes;
}

absl::StatusOr<ValidatedBatch> ValidateBatch(const AttentionProblem& problem) {
  if (problem.query_starts || problem.key_starts) {
    return ValidatePacked(problem);
  }
  absl::StatusOr<ValidatedProblem> valid = Validate(problem);
  if (!valid.ok()) return valid.status();
  ValidatedBatch batch;
  batch.output_type = valid->query.type;
  batch.output_shape = valid->output_shape;
  batch.weights_shape = valid->weights_shape;
  batch.lse_shape = valid->lse_shape;
  batch.top_k_shape = valid->top_k_shape;
  batch.key_weights_shape = valid->key_weights_shape;
  batch.problems.push_back(*std::move(valid));
  return batch;
}

}  // namespace attention
