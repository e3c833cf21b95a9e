#ifndef ATTENTION_CLIENT_CLI_WEIGHTS_VIEW_H_
#define ATTENTION_CLIENT_CLI_WEIGHTS_VIEW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/cli/heatmap.h"
#include "core/tensor.h"

namespace attention::cli {

/// One head of one batch entry.
struct HeadIndex {
  int64_t batch = 0;
  int64_t head = 0;
};

/// Parses "BATCH,HEAD" and holds it against the shape of a query, (B, H, L, D),
/// (B, L, D) or (L, D): UsageError() says what is wrong.
absl::StatusOr<HeadIndex> ParseHeadIndex(absl::string_view text,
                                         const Shape& query);

/// INTERNAL where a reply's weights are not those of such a query, so that an
/// index within the one may be beyond the other.
absl::Status CheckWeights(const Shape& weights, const Shape& query);

/// That head's weights as a heatmap. `weights` is (B, H, Lq, Lk) or shorter,
/// the index within it. Keys beyond the entry's largest valid length are left
/// out; where `tokens` holds B * Lk labels they name the keys, and where Lq =
/// Lk the queries too, of which those beyond the length are then left out as
/// well.
Heatmap ViewOfWeights(const Tensor& weights, const HeadIndex& index,
                      const std::optional<Tensor>& valid_lens,
                      const std::vector<std::string>& tokens);

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_WEIGHTS_VIEW_H_
