#include <utility>

#include "absl/strings/str_cat.h"
#include "core/batch.h"
#include "core/batch_entries.h"
#include "core/element.h"
#include "core/validate_parts.h"

namespace attention::internal {
namespace {

// Where each entry starts, and where the last one ends.
absl::StatusOr<std::vector<int64_t>> ReadStarts(absl::string_view field,
                                                const TensorView& view,
                                                absl::string_view of,
                                                int64_t total) {
  if (absl::Status status = CheckIntegers(field, view); !status.ok()) {
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
  if (absl::Status status = CheckView(field, view); !status.ok()) {
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
  if (absl::Status status = CheckView(field, *scales); !status.ok()) {
    return status;
  }
  const Shape expected = {rows.shape[0], rows.shape[1]};
  if (scales->shape == expected) return absl::OkStatus();
  return FieldError(
      field, absl::StrCat("shape ", ShapeToString(scales->shape), " (expected ",
                          ShapeToString(expected), ", tokens and heads)"));
}

// Of (tokens, heads), as (1, heads, tokens).
std::optional<TensorView> ScalesOfTokens(
    const std::optional<TensorView>& packed, int64_t first, int64_t last) {
  if (!packed) return std::nullopt;
  TensorView entry = *packed;
  if (packed->data != nullptr) entry.data += first * packed->strides[0];
  entry.shape = {1, packed->shape[1], last - first};
  entry.strides = {0, packed->strides[1], packed->strides[0]};
  return entry;
}

// Keys and values that are packed beside queries.
absl::Status CheckPackedKeys(const AttentionProblem& batch) {
  if (batch.key_value.size() != 1) {
    return FieldError("key", absl::StrCat(batch.key_value.size(),
                                          " blocks (expected 1 in a packed "
                                          "batch)"));
  }
  const auto& [key, value, key_scale, value_scale, checked, page] =
      batch.key_value[0];
  absl::Status status = CheckPackedRank("key", key);
  status.Update(CheckPackedRank("value", value));
  if (!status.ok()) return status;
  status.Update(CheckPackedScales("key_scale", key, key_scale));
  status.Update(CheckPackedScales("value_scale", value, value_scale));
  if (status.ok() && value.shape[0] != key.shape[0]) {
    status =
        FieldError("value", absl::StrCat("shape ", ShapeToString(value.shape),
                                         " has length ", value.shape[0],
                                         ", key has ", key.shape[0]));
  }
  return status;
}

}  // namespace

KeyValueBlock KeysOfTokens(const KeyValueBlock& all, int64_t first,
                           int64_t last) {
  return {Tokens(all.key, first, last), Tokens(all.value, first, last),
          ScalesOfTokens(all.key_scale, first, last),
          ScalesOfTokens(all.value_scale, first, last), all.scales_checked};
}

absl::Status BatchEntries::ReadPacked() {
  const bool own_keys = !batch_.key_value_of_entries.empty();
  if (!batch_.query_starts) {
    return FieldError("query_starts", "missing beside key_starts");
  }
  if (!own_keys && !batch_.key_starts) {
    return FieldError("key_starts", "missing beside query_starts");
  }
  if (own_keys && batch_.key_starts) {
    return FieldError("key_starts", "given where entries have their own keys");
  }
  absl::Status status = CheckPackedRank("query", batch_.query);
  if (status.ok()) {
    status = CheckQueryExtents(batch_.query, batch_.query.shape[1]);
  }
  if (status.ok() && !own_keys) status = CheckPackedKeys(batch_);
  for (const auto& [field, given] :
       {std::pair("attend_mask", batch_.masks.attend_mask.has_value()),
        std::pair("bias", batch_.masks.bias.has_value())}) {
    if (given) status.Update(FieldError(field, "is not for packed batches"));
  }
  if (!status.ok()) return status;
  auto queries = ReadStarts("query_starts", *batch_.query_starts, "query",
                            batch_.query.shape[0]);
  if (!queries.ok()) return queries.status();
  query_starts_ = *std::move(queries);
  count_ = static_cast<int64_t>(query_starts_.size()) - 1;
  if (own_keys) return absl::OkStatus();
  auto keys = ReadStarts("key_starts", *batch_.key_starts, "key",
                         batch_.key_value[0].key.shape[0]);
  if (!keys.ok()) return keys.status();
  key_starts_ = *std::move(keys);
  if (key_starts_.size() == query_starts_.size()) return absl::OkStatus();
  return FieldError(
      "key_starts",
      absl::StrCat("shape ", ShapeToString(batch_.key_starts->shape),
                   ", query_starts has ",
                   ShapeToString(batch_.query_starts->shape)));
}

// Types, heads and widths: what would be wrong with every entry. And the values
// of scales, by the tokens that they are of.
absl::Status BatchEntries::CheckWhole() const {
  AttentionProblem whole = shared_;
  const KeyValueBlock& all = batch_.key_value[0];
  whole.query = Tokens(batch_.query, 0, batch_.query.shape[0]);
  whole.key_value = {KeysOfTokens(all, 0, all.key.shape[0])};
  whole.masks.valid_lens.reset();
  whole.masks.query_offsets.reset();
  for (std::optional<TensorView>* view : {&whole.alibi_slopes, &whole.sinks}) {
    if (*view && (*view)->rank() != 1) view->reset();
  }
  whole.wanted = {};
  whole.tokens_first = true;
  return attention::Validate(whole).status();
}

}  // namespace attention::internal
