#include "core/batch_entries.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/batch.h"
#include "core/element.h"
#include "core/validate_parts.h"

namespace attention::internal {
namespace {

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

KeyValueBlock KeysOfTokens(const KeyValueBlock& all, int64_t first,
                           int64_t last) {
  return {Tokens(all.key, first, last), Tokens(all.value, first, last),
          ScalesOfTokens(all.key_scale, first, last),
          ScalesOfTokens(all.value_scale, first, last), all.scales_checked};
}

// Of one extent, the entries', or of the two of `most`, where a rectangle has
// rows besides.
absl::Status CheckPerEntry(absl::string_view field,
                           const std::optional<TensorView>& view,
                           const Shape& most, absl::string_view of) {
  if (!view) return absl::OkStatus();
  absl::Status status = CheckView(field, *view);
  const Shape one = {most[0]};
  if (!status.ok() || view->shape == one || view->shape == most) return status;
  const std::string shape = ShapeToString(view->shape);
  if (view->shape.size() == most.size() && view->shape[0] == most[0]) {
    return FieldError(
        field, absl::StrCat("shape ", shape, " (expected ", ShapeToString(one),
                            " or ", ShapeToString(most), ")"));
  }
  return FieldError(
      field, absl::StrCat("shape ", shape, " (expected [", most[0],
                          most.size() > 1 ? ", ...], " : "], ", of, ")"));
}

// Of two extents, the entries' and the heads'; of one it is shared by all.
absl::Status CheckPerHead(absl::string_view field,
                          const std::optional<TensorView>& view, int64_t heads,
                          int64_t entries) {
  if (!view) return absl::OkStatus();
  const Shape expected = {entries, heads};
  absl::Status status = internal::CheckView(field, *view);
  if (!status.ok() || view->shape == Shape{heads} || view->shape == expected) {
    return status;
  }
  return FieldError(
      field, absl::StrCat("shape ", ShapeToString(view->shape), " (expected [",
                          heads, "] or ", ShapeToString(expected), ")"));
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

absl::Status OfEntry(const absl::Status& status, int64_t entry,
                     absl::string_view batch) {
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), " (in entry ", entry,
                                   " of the ", batch, ")"));
}

// The options of a batch, without tensors of its entries.
AttentionProblem SharedOptions(const AttentionProblem& batch) {
  AttentionProblem shared;
  shared.scoring = batch.scoring;
  shared.softcap = batch.softcap;
  shared.masks = batch.masks;
  shared.alibi_slopes = batch.alibi_slopes;
  shared.sinks = batch.sinks;
  shared.dropout = batch.dropout;
  shared.empty_rows = batch.empty_rows;
  shared.wanted = batch.wanted;
  shared.wanted.top_k.reset();
  return shared;
}

// None where Validate() refuses the keys.
std::optional<int64_t> KeyCount(const KeyValueBlocks& blocks) {
  int64_t count = 0;
  for (const KeyValueBlock& block : blocks) {
    if (block.key.rank() != 4 ||
        __builtin_add_overflow(count, block.key.shape[2], &count)) {
      return std::nullopt;
    }
  }
  return count;
}

}  // namespace

BatchEntries::BatchEntries(const AttentionProblem& batch)
    : batch_(batch), shared_(SharedOptions(batch)) {}

absl::StatusOr<BatchEntries> BatchEntries::Of(const AttentionProblem& batch) {
  BatchEntries entries(batch);
  const bool packed = batch.query_starts || batch.key_starts;
  absl::Status status = packed ? entries.ReadPacked() : entries.ReadRectangle();
  if (status.ok()) status = entries.CheckOptions();
  if (status.ok() && !entries.key_starts_.empty()) {
    status = entries.CheckWhole();
  }
  if (!status.ok()) return status;
  return entries;
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

absl::Status BatchEntries::ReadRectangle() {
  if (absl::Status status = CheckQuery(batch_.query); !status.ok()) {
    return status;
  }
  const int rank = batch_.query.rank();
  count_ = rank > 2 ? batch_.query.shape[0] : 1;
  const Masks& masks = batch_.masks;
  absl::Status status;
  if (masks.attend_mask && !batch_.attend_mask_checked) {
    status = CheckAttendMask(*masks.attend_mask);
  }
  if (masks.bias) status.Update(CheckView("bias", *masks.bias));
  return status;
}

absl::Status BatchEntries::CheckOptions() const {
  if (const size_t own = batch_.key_value_of_entries.size();
      own > 0 && static_cast<int64_t>(own) != count_) {
    return FieldError("key",
                      absl::StrCat("of ", own, " entries, query has ", count_));
  }
  const absl::string_view of =
      is_packed() ? "the entries of query_starts" : "the batch of query";
  const Shape query =
      is_packed() ? batch_.query.shape : Widen(batch_.query).shape;
  const Shape one = {count_};
  absl::Status status =
      CheckPerEntry("valid_lens", batch_.masks.valid_lens,
                    is_packed() ? one : Shape{count_, query[2]}, of);
  status.Update(
      CheckPerEntry("query_offsets", batch_.masks.query_offsets, one, of));
  const int64_t heads = query[1];
  status.Update(
      CheckPerHead("alibi_slopes", batch_.alibi_slopes, heads, count_));
  status.Update(CheckPerHead("sinks", batch_.sinks, heads, count_));
  return status;
}

void BatchEntries::TakeQuery(int64_t entry, AttentionProblem& problem) const {
  if (is_packed()) {
    const auto n = static_cast<size_t>(entry);
    problem.query =
        Tokens(batch_.query, query_starts_[n], query_starts_[n + 1]);
    return;
  }
  problem.query = Widen(batch_.query);
  TakeEntry(entry, problem.query);
}

// Broadcast as the caller has them: errors have the batch's shapes.
absl::Status BatchEntries::TakeMasks(int64_t entry,
                                     AttentionProblem& problem) const {
  const Masks& masks = problem.masks;
  if (is_packed() || !(masks.attend_mask || masks.bias)) {
    return absl::OkStatus();
  }
  const std::optional<int64_t> keys = KeyCount(problem.key_value);
  if (!keys) return absl::OkStatus();
  Shape target = Widen(batch_.query).shape;
  target.back() = *keys;
  target = Narrow(target, batch_.query.rank());
  for (const auto& [field, mask] :
       {std::pair("attend_mask", &problem.masks.attend_mask),
        std::pair("bias", &problem.masks.bias)}) {
    if (!*mask) continue;
    absl::StatusOr<TensorView> wide = Broadcast(field, **mask, target);
    if (!wide.ok()) return wide.status();
    *mask = AddExtents(*std::move(wide), 4);
    TakeEntry(entry, **mask);
  }
  return absl::OkStatus();
}

KeyValueBlocks BatchEntries::KeysOf(int64_t entry) const {
  const auto n = static_cast<size_t>(entry);
  if (key_starts_.empty()) return batch_.key_value_of_entries[n];
  KeyValueBlock keys =
      KeysOfTokens(batch_.key_value[0], key_starts_[n], key_starts_[n + 1]);
  keys.scales_checked = true;  // with the whole
  return {std::move(keys)};
}

absl::StatusOr<ValidatedProblem> BatchEntries::Validate(int64_t entry) const {
  AttentionProblem problem = shared_;
  TakeQuery(entry, problem);
  problem.key_value = KeysOf(entry);
  for (std::optional<TensorView>* view :
       {&problem.masks.valid_lens, &problem.masks.query_offsets}) {
    if (*view) TakeEntry(entry, **view);
  }
  for (std::optional<TensorView>* view :
       {&problem.alibi_slopes, &problem.sinks}) {
    if (*view && (*view)->rank() == 2) TakeEntry(entry, **view);
  }
  problem.first_entry = entry;
  problem.sinks_checked =
      entry > 0 && problem.sinks && problem.sinks->rank() == 1;
  problem.attend_mask_checked = true;  // all of it
  const absl::string_view batch = is_packed() ? "packed batch" : "batch";
  if (absl::Status masks = TakeMasks(entry, problem); !masks.ok()) {
    return OfEntry(masks, entry, batch);
  }
  absl::StatusOr<ValidatedProblem> valid = attention::Validate(problem);
  if (!valid.ok()) return OfEntry(valid.status(), entry, batch);
  valid->packed_entry = entry;
  return valid;
}

}  // namespace attention::internal
