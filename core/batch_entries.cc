#include "core/batch_entries.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/validate_parts.h"

namespace attention::internal {
namespace {

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
