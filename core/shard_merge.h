#ifndef ATTENTION_CORE_SHARD_MERGE_H_
#define ATTENTION_CORE_SHARD_MERGE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/datatype.h"

namespace attention {

/// One row of a shard's results, anywhere in host memory.
struct ShardRow {
  const std::byte* output;
  const std::byte* lse;  // one FP32
};

/// Merges rows of shards: each has its share of the keys, and to their softmax
/// it is one key whose score is its lse. A shard in which no key takes part
/// (lse -inf) adds nothing, whatever its output holds.
class ShardMerger {
 public:
  explicit ShardMerger(DataType type) : type_(type) {}

  /// The row of all keys, of `width` >= 0 elements, or so many of a wider one.
  /// `output` and `lse` may be those of one of the shards.
  void Merge(absl::Span<const ShardRow> shards, int64_t width,
             std::byte* output, std::byte* lse);

 private:
  void Add(double weight, const std::byte* output);

  const DataType type_;
  std::vector<double> weights_;
  std::vector<double> sums_;
};

}  // namespace attention

#endif  // ATTENTION_CORE_SHARD_MERGE_H_
