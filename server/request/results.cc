#include "server/request/results.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// Terms >= 0.
int64_t SaturatingAdd(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kMost : sum;
}

// An extent of 0 may stand beside any others.
int64_t SaturatingBytes(DataType type, const Shape& shape) {
  if (absl::c_linear_search(shape, 0)) return 0;
  int64_t bytes = ByteSize(type);
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return kMost;
  }
  return bytes;
}

Result Plan(const WantedResult& wanted, const ValidatedBatch& batch) {
  Result result;
  result.wanted = wanted;
  switch (wanted.result) {
    case ResultField::kOutput:
      result.type = batch.output_type;
      result.shape = batch.output_shape;
      break;
    case ResultField::kWeights:
      result.shape = batch.weights_shape;
      break;
    case ResultField::kLse:
      result.shape = batch.lse_shape;
      break;
    case ResultField::kTopKIndices:
      result.type = DataType::kInt64;
      result.shape = batch.top_k_shape;
      break;
    case ResultField::kTopKWeights:
      result.shape = batch.top_k_shape;
      break;
    case ResultField::kKeyWeights:
      result.shape = batch.key_weights_shape;
      break;
    case ResultField::kScores:
      result.shape = batch.weights_shape;
      break;
  }
  result.bytes = SaturatingBytes(result.type, result.shape);
  return result;
}

absl::Status CheckRoom(const Result& result) {
  const auto room = static_cast<int64_t>(result.wanted.place.bytes.size());
  if (!result.in_region() || result.bytes <= room) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      Name(result.wanted.result), ": shape ", ShapeToString(result.shape),
      " takes ", result.bytes, " bytes, shared_memory_byte_size is ", room));
}

// Those that are not in regions.
int64_t Sum(absl::Span<const Result> results) {
  int64_t total = 0;
  for (const Result& result : results) {
    if (!result.in_region()) total = SaturatingAdd(total, result.bytes);
  }
  return total;
}

MutableTensorView ViewOf(Result& result) {
  const RegionBytes& place = result.wanted.place;
  MutableTensorView view = MutableContiguousView(
      result.type, result.shape,
      result.in_region() ? place.bytes.data() : result.buffer.data());
  if (result.in_region()) {
    view.space = place.region->description().space;
    view.device = place.region->description().device;
  }
  return view;
}

}  // namespace

Results::Results(const std::vector<WantedResult>& wanted,
                 const ValidatedBatch& batch)
    : sent_(wanted.size()) {
  for (const WantedResult& result : wanted) {
    results_.push_back(Plan(result, batch));
  }
  const auto has = [&wanted](ResultField field) {
    return absl::c_any_of(wanted, [field](const WantedResult& result) {
      return result.result == field;
    });
  };
  const auto add = [&](ResultField field) {
    if (!has(field)) results_.push_back(Plan({field}, batch));
  };
  // The engine computes it in any case, and these together.
  add(ResultField::kOutput);
  if (has(ResultField::kTopKWeights)) add(ResultField::kTopKIndices);
  if (has(ResultField::kTopKIndices)) add(ResultField::kTopKWeights);
}

int64_t Results::Bytes() const { return Sum(results_); }

int64_t Results::SentBytes() const { return Sum(sent()); }

const Result& Results::LargestSent() const {
  const absl::Span<const Result> all = sent();
  return *absl::c_max_element(all, [](const Result& a, const Result& b) {
    return (a.in_region() ? -1 : a.bytes) < (b.in_region() ? -1 : b.bytes);
  });
}

absl::Status Results::CheckFit(int64_t other_bytes, int64_t limit) const {
  for (const Result& result : results_) {
    if (absl::Status room = CheckRoom(result); !room.ok()) return room;
  }
  const int64_t bytes = SaturatingAdd(SentBytes(), other_bytes);
  if (bytes <= limit) return absl::OkStatus();
  const Result& largest = LargestSent();
  return absl::ResourceExhaustedError(absl::StrCat(
      Name(largest.wanted.result), ": shape ", ShapeToString(largest.shape),
      " takes ", largest.bytes, " bytes, the reply ", bytes, " (at most ",
      limit, ", the server's max_response_bytes)"));
}

absl::Status Results::Allocate() {
  for (Result& result : results_) {
    if (result.in_region()) continue;
    absl::StatusOr<AlignedBuffer> buffer = AlignedBuffer::Create(result.bytes);
    if (!buffer.ok()) return buffer.status();
    result.buffer = *std::move(buffer);
  }
  return absl::OkStatus();
}

AttentionOutputs Results::Outputs() { return OutputsAt(ViewOf); }

AttentionOutputs Results::OutputsAt(
    absl::FunctionRef<MutableTensorView(Result& result)> place) {
  AttentionOutputs outputs;
  for (Result& result : results_) {
    switch (result.wanted.result) {
      case ResultField::kOutput:
        outputs.output = place(result);
        break;
      case ResultField::kWeights:
        outputs.weights = place(result);
        break;
      case ResultField::kLse:
        outputs.lse = place(result);
        break;
      case ResultField::kTopKIndices:
        outputs.top_k_indices = place(result);
        break;
      case ResultField::kTopKWeights:
        outputs.top_k_weights = place(result);
        break;
      case ResultField::kKeyWeights:
        outputs.key_weights = place(result);
        break;
      case ResultField::kScores:
        outputs.scores = place(result);
        break;
    }
  }
  return outputs;
}

}  // namespace attention::server
