#include "client/cpp/cli/weights_view.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cpp/cli/failure.h"
#include "core/element.h"

namespace attention::cli {
namespace {

// The largest length of the batch entry's rows, or `keys` where there is none.
int64_t ValidKeys(const std::optional<Tensor>& valid_lens, int64_t batches,
                  int64_t batch, int64_t keys) {
  if (!valid_lens || batches == 0 ||
      valid_lens->element_count() % batches != 0) {
    return keys;
  }
  const int64_t per_batch = valid_lens->element_count() / batches;
  const int64_t size = ByteSize(valid_lens->type());
  int64_t longest = 0;
  for (int64_t i = batch * per_batch; i < (batch + 1) * per_batch; ++i) {
    longest = std::max(longest, LoadInteger(valid_lens->type(),
                                            valid_lens->data() + i * size));
  }
  return std::min(longest, keys);
}

}  // namespace

absl::StatusOr<HeadIndex> ParseHeadIndex(absl::string_view text,
                                         const Shape& query) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  HeadIndex index;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &index.batch) ||
      !absl::SimpleAtoi(parts[1], &index.head)) {
    return UsageError(
        absl::StrCat("--heatmap: \"", text, "\" is not BATCH,HEAD, as in 0,3"));
  }
  const int64_t batches = query.size() >= 3 ? query[0] : 1;
  const int64_t heads = query.size() >= 4 ? query[1] : 1;
  if (index.batch < 0 || index.batch >= batches || index.head < 0 ||
      index.head >= heads) {
    return UsageError(absl::StrCat("--heatmap: there is no ", text, "; query ",
                                   ShapeToString(query), " has ", batches,
                                   " batch entries with ", heads,
                                   " heads each, counted from 0"));
  }
  return index;
}

absl::Status CheckWeights(const Shape& weights, const Shape& query) {
  if (weights.size() >= 2 && weights.size() == query.size() &&
      std::equal(weights.begin(), weights.end() - 1, query.begin())) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(
      "reply: weights ", ShapeToString(weights), " to query ",
      ShapeToString(query), " (expected its extents before the last one)"));
}

Heatmap ViewOfWeights(const Tensor& weights, const HeadIndex& index,
                      const std::optional<Tensor>& valid_lens,
                      const std::vector<std::string>& tokens) {
  const Shape& shape = weights.shape();
  const size_t rank = shape.size();
  const int64_t queries = shape[rank - 2];
  const int64_t keys = shape[rank - 1];
  const int64_t batches = rank >= 3 ? shape[0] : 1;
  const int64_t heads = rank >= 4 ? shape[1] : 1;

  Heatmap heatmap;
  heatmap.columns = ValidKeys(valid_lens, batches, index.batch, keys);
  heatmap.rows = queries;
  if (!tokens.empty() &&
      static_cast<int64_t>(tokens.size()) == batches * keys) {
    const auto first = tokens.begin() + index.batch * keys;
    heatmap.column_labels.assign(first, first + heatmap.columns);
    if (queries == keys) {
      heatmap.rows = heatmap.columns;
      heatmap.row_labels = heatmap.column_labels;
    }
  }
  const int64_t head = index.batch * heads + index.head;
  for (int64_t i = 0; i < heatmap.rows; ++i) {
    for (int64_t j = 0; j < heatmap.columns; ++j) {
      const int64_t element = (head * queries + i) * keys + j;
      heatmap.values.push_back(static_cast<float>(
          LoadElement(weights.type(),
                      weights.data() + element * ByteSize(weights.type()))));
    }
  }
  return heatmap;
}

}  // namespace attention::cli
