#include "core/batch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/batch_entries.h"
#include "core/validate_parts.h"

namespace attention {
namespace {

using internal::BatchEntries;
using internal::FieldError;
using internal::Narrow;
using internal::TakeEntry;
using internal::Tokens;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

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

// That a result's extents can be multiplied; `field` is what they are due to.
absl::Status CheckCount(absl::string_view field, absl::string_view result,
                        const Shape& shape, DataType type) {
  const auto count = ElementCount(shape, ByteSize(type));
  if (count.ok()) return absl::OkStatus();
  return FieldError(field, absl::StrCat(result, count.status().message()));
}

// Where entries begin, and what all of them have together.
struct Totals {
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t keys = 0;
  int64_t weights = 0;
  int64_t longest = 0;  // keys of an entry
  bool equal = true;    // lengths
  int64_t value_width = 0;
};

absl::StatusOr<Totals> AddUp(const AttentionProblem& problem, bool packed,
                             ValidatedBatch& batch) {
  Totals totals;
  totals.heads =
      packed ? problem.query.shape[1] : internal::Widen(problem.query).shape[1];
  // Of a packed batch without entries, too.
  if (problem.key_value_of_entries.empty()) {
    totals.value_width = problem.key_value[0].value.shape[2];
  } else {
    totals.value_width = batch.problems.front().value_width;
  }
  for (size_t n = 0; n < batch.problems.size(); ++n) {
    const ValidatedProblem& entry = batch.problems[n];
    if (entry.value_width != totals.value_width) {
      return FieldError(
          "value", absl::StrCat("width ", entry.value_width, " in entry ", n,
                                ", entry 0 has ", totals.value_width));
    }
    batch.begins.push_back(
        {.row = totals.rows, .weight = totals.weights, .key = totals.keys});
    totals.rows += entry.query_length;
    totals.keys = AddProduct(totals.keys, entry.key_length, 1, 1);
    totals.weights = AddProduct(totals.weights, entry.query_heads,
                                entry.query_length, entry.key_length);
    totals.longest = std::max(totals.longest, entry.key_length);
    totals.equal &= entry.key_length == batch.problems[0].key_length;
  }
  return totals;
}

void SetPackedShapes(const Totals& totals, ValidatedBatch& batch) {
  batch.output_shape = {totals.rows, totals.heads, totals.value_width};
  batch.weights_shape = {totals.weights};
  batch.lse_shape = {totals.heads, totals.rows};
  batch.key_weights_shape = {totals.heads, totals.keys};
}

void SetShapesOfEntries(const TensorView& query, const Totals& totals,
                        ValidatedBatch& batch) {
  const int rank = query.rank();
  const auto entries = static_cast<int64_t>(batch.problems.size());
  const int64_t rows = batch.problems[0].query_length;
  batch.output_shape =
      Narrow({entries, totals.heads, rows, totals.value_width}, rank);
  batch.lse_shape = batch.output_shape;
  batch.lse_shape.pop_back();
  if (totals.equal) {
    batch.weights_shape =
        Narrow({entries, totals.heads, rows, totals.longest}, rank);
    batch.key_weights_shape =
        Narrow({entries, totals.heads, 1, totals.longest}, rank);
    batch.key_weights_shape.erase(batch.key_weights_shape.end() - 2);
  } else {
    batch.weights_shape = {totals.weights};
    batch.key_weights_shape = {totals.heads, totals.keys};
  }
}

// An entry with fewer keys has rows that are not full.
absl::Status SetTopK(int64_t top_k, const Totals& totals,
                     ValidatedBatch& batch) {
  absl::Status status =
      internal::CheckTopK(top_k, totals.longest, "keys of the longest entry");
  if (!status.ok()) return status;
  batch.top_k_shape = batch.output_shape;
  batch.top_k_shape.back() = top_k;
  status = CheckCount("top_k", "", batch.top_k_shape, DataType::kInt64);
  if (!status.ok()) return status;
  for (ValidatedProblem& problem : batch.problems) {
    problem.wanted.top_k = top_k;
    problem.top_k_shape = problem.weights_shape;
    problem.top_k_shape.back() = top_k;
  }
  return absl::OkStatus();
}

absl::StatusOr<ValidatedBatch> ValidateEntries(
    const AttentionProblem& problem) {
  const absl::StatusOr<BatchEntries> entries = BatchEntries::Of(problem);
  if (!entries.ok()) return entries.status();
  ValidatedBatch batch;
  batch.problems.reserve(static_cast<size_t>(entries->count()));
  for (int64_t entry = 0; entry < entries->count(); ++entry) {
    absl::StatusOr<ValidatedProblem> valid = entries->Validate(entry);
    if (!valid.ok()) return valid.status();
    batch.problems.push_back(*std::move(valid));
  }
  batch.output_type = problem.query.type;
  const bool packed = entries->is_packed();
  const absl::StatusOr<Totals> totals = AddUp(problem, packed, batch);
  if (!totals.ok()) return totals.status();
  if (packed) {
    batch.form = ValidatedBatch::Form::kPacked;
    SetPackedShapes(*totals, batch);
  } else {
    batch.form = ValidatedBatch::Form::kEntries;
    SetShapesOfEntries(problem.query, *totals, batch);
  }
  constexpr DataType kFloat = DataType::kFloat32;
  absl::Status status =
      CheckCount("key", "the key weights' ", batch.key_weights_shape, kFloat);
  status.Update(
      CheckCount("key", "the weights' ", batch.weights_shape, kFloat));
  status.Update(
      CheckCount("value", "the output's ", batch.output_shape, kFloat));
  if (status.ok() && problem.wanted.top_k) {
    status = SetTopK(*problem.wanted.top_k, *totals, batch);
  }
  if (!status.ok()) return status;
  return batch;
}

// A result of a batch whose first extent is the entries', if it has one, as one
// of `extents` extents; the part of one entry.
MutableTensorView PartOf(const MutableTensorView& result, int extents,
                         int64_t entry) {
  MutableTensorView part = internal::AddExtents(result, extents);
  TakeEntry(entry, part);
  return part;
}

// `count` from `first` on of (heads, all entries') as (1, heads, count).
MutableTensorView PartOfHeads(const MutableTensorView& result, int64_t first,
                              int64_t count) {
  MutableTensorView part = result;
  if (part.data != nullptr) part.data += first * result.strides[1];
  part.shape = {1, result.shape[0], count};
  part.strides = {0, result.strides[0], result.strides[1]};
  return part;
}

}  // namespace

AttentionOutputs ValidatedBatch::OutputsOf(
    size_t index, const AttentionOutputs& results) const {
  if (form == Form::kOneProblem) return results;
  const ValidatedProblem& problem = problems[index];
  const WantedOutputs& wanted = problem.wanted;
  const Begin& begin = begins[index];
  const auto entry = static_cast<int64_t>(index);
  const bool packed = form == Form::kPacked;
  // Of rows; results that are not wanted have no extents.
  const auto rows = [&](const MutableTensorView& of) {
    return packed ? Tokens(of, begin.row, begin.row + problem.query_length)
                  : PartOf(of, 4, entry);
  };
  const auto matrix = [&](const MutableTensorView& of) {
    constexpr int64_t kFloat = sizeof(float);
    return MutableContiguousView(
        DataType::kFloat32,
        {1, problem.query_heads, problem.query_length, problem.key_length},
        of.data + begin.weight * kFloat);
  };
  AttentionOutputs outputs;
  outputs.output = rows(results.output);
  if (wanted.weights) outputs.weights = matrix(results.weights);
  if (wanted.scores) outputs.scores = matrix(results.scores);
  if (wanted.top_k) {
    outputs.top_k_indices = rows(results.top_k_indices);
    outputs.top_k_weights = rows(results.top_k_weights);
  }
  if (wanted.lse) {
    outputs.lse =
        packed ? PartOfHeads(results.lse, begin.row, problem.query_length)
               : PartOf(results.lse, 3, entry);
  }
  if (wanted.key_weights) {
    // As packed, unless the entries' lengths are equal.
    const bool heads_first = packed || weights_shape.size() == 1;
    outputs.key_weights =
        heads_first
            ? PartOfHeads(results.key_weights, begin.key, problem.key_length)
            : PartOf(results.key_weights, 3, entry);
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
  if (problem.query_starts || problem.key_starts ||
      !problem.key_value_of_entries.empty()) {
    return ValidateEntries(problem);
  }
  absl::StatusOr<ValidatedProblem> valid = Validate(problem);
  if (!valid.ok()) return valid.status();
  absl::StatusOr<ValidatedBatch> result(absl::in_place);
  ValidatedBatch& batch = *result;
  batch.output_type = valid->query.type;
  batch.output_shape = valid->output_shape;
  batch.weights_shape = valid->weights_shape;
  batch.lse_shape = valid->lse_shape;
  batch.top_k_shape = valid->top_k_shape;
  batch.key_weights_shape = valid->key_weights_shape;
  batch.problems.push_back(*std::move(valid));
  return result;
}

}  // namespace attention
