#include "core/shard_merge.h"

#include <cstring>

#include "core/element.h"
#include "core/softmax_state.h"

namespace attention {

void ShardMerger::Merge(absl::Span<const ShardRow> shards, int64_t width,
                        std::byte* output, std::byte* lse) {
  SoftmaxState<double> state;
  weights_.clear();
  for (const ShardRow& shard : shards) {
    weights_.push_back(LoadElement(DataType::kFloat32, shard.lse));
    state.Add(weights_.back());
  }
  sums_.assign(static_cast<size_t>(width), 0);
  for (size_t i = 0; i < shards.size(); ++i) {
    const double weight = state.Weight(weights_[i]);
    if (weight != 0) Add(weight, shards[i].output);
  }
  for (size_t i = 0; i < sums_.size(); ++i) {
    StoreElement(type_, sums_[i],
                 output + static_cast<int64_t>(i) * ByteSize(type_));
  }
  StoreElement(DataType::kFloat32, state.LogSumExp(), lse);
}

void ShardMerger::Add(double weight, const std::byte* output) {
  if (type_ == DataType::kFloat32) {  // a loop that compilers know to vectorize
    for (size_t i = 0; i < sums_.size(); ++i) {
      float element;
      std::memcpy(&element, output + i * sizeof element, sizeof element);
      sums_[i] += weight * static_cast<double>(element);
    }
    return;
  }
  for (size_t i = 0; i < sums_.size(); ++i) {
    sums_[i] += weight * LoadElement(type_, output + static_cast<int64_t>(i) *
                                                         ByteSize(type_));
  }
}

}  // namespace attention
