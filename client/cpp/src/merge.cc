#include "attention_client/merge.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/shard_merge.h"

namespace attention::client {
namespace {

std::string Described(const Tensor& tensor) {
  return absl::StrCat(Name(tensor.type()), " ", ShapeToString(tensor.shape()));
}

absl::Status Mismatch(size_t shard, const char* name, const Tensor& tensor,
                      DataType type, const Shape& shape) {
  return absl::InvalidArgumentError(
      absl::StrCat("shards[", shard, "].", name, ": ", Described(tensor),
                   " (expected ", Name(type), " ", ShapeToString(shape), ")"));
}

// What the lse of an output is like: without its width; heads first in a packed
// batch.
Shape LseShape(const Tensor& output, const MergeOptions& options) {
  Shape shape = output.shape();
  shape.pop_back();
  if (options.packed) std::reverse(shape.begin(), shape.end());
  return shape;
}

absl::Status Check(absl::Span<const AttendResult> shards,
                   const MergeOptions& options) {
  if (shards.empty()) {
    return absl::InvalidArgumentError("shards: none (expected 1 or more)");
  }
  const Tensor& first = shards[0].output;
  const size_t rank = first.shape().size();
  if (rank < 2 || (options.packed && rank != 3)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shards[0].output: ", Described(first), " (expected ",
        options.packed ? "(T, Hq, Dv)" : "(B, Hq, Lq, Dv), (B, Lq, Dv)",
        options.packed ? ")" : " or (Lq, Dv))"));
  }
  const Shape lse_shape = LseShape(first, options);
  for (size_t i = 0; i < shards.size(); ++i) {
    const AttendResult& shard = shards[i];
    if (shard.output.type() != first.type() ||
        shard.output.shape() != first.shape()) {
      return Mismatch(i, "output", shard.output, first.type(), first.shape());
    }
    if (!shard.lse) {
      return absl::InvalidArgumentError(
          absl::StrCat("shards[", i,
                       "].lse: missing (expected a result of a request with "
                       "return_lse)"));
    }
    if (shard.lse->type() != DataType::kFloat32 ||
        shard.lse->shape() != lse_shape) {
      return Mismatch(i, "lse", *shard.lse, DataType::kFloat32, lse_shape);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AttendResult> Merge(absl::Span<const AttendResult> shards,
                                   const MergeOptions& options) {
  if (absl::Status status = Check(shards, options); !status.ok()) return status;
  const AttendResult& first = shards[0];
  AttendResult merged;
  merged.id = first.id;
  merged.backend = first.backend;
  merged.kernel = first.kernel;
  for (const AttendResult& shard : shards) {
    merged.queue_time = std::max(merged.queue_time, shard.queue_time);
    merged.compute_time = std::max(merged.compute_time, shard.compute_time);
  }
  auto output =
      Tensor::CreateUninitialized(first.output.type(), first.output.shape());
  if (!output.ok()) return output.status();
  auto lse =
      Tensor::CreateUninitialized(DataType::kFloat32, first.lse->shape());
  if (!lse.ok()) return lse.status();
  merged.output = *std::move(output);
  merged.lse = *std::move(lse);

  const int64_t width = first.output.shape().back();
  const int64_t rows = merged.lse->element_count();
  const int64_t heads = options.packed ? first.output.shape()[1] : 1;
  ShardMerger merger(first.output.type());
  std::vector<ShardRow> of_shards(shards.size());
  for (int64_t row = 0; row < rows; ++row) {
    // Row t * heads + h of a packed output is row h * (rows / heads) + t of its
    // lse.
    const int64_t lse_row =
        options.packed ? row % heads * (rows / heads) + row / heads : row;
    const int64_t output_at = row * width * ByteSize(first.output.type());
    const int64_t lse_at = lse_row * ByteSize(DataType::kFloat32);
    for (size_t i = 0; i < shards.size(); ++i) {
      of_shards[i] = {shards[i].output.data() + output_at,
                      shards[i].lse->data() + lse_at};
    }
    merger.Merge(of_shards, width, merged.output.data() + output_at,
                 merged.lse->data() + lse_at);
  }
  return merged;
}

}  // namespace attention::client
