#include "server/request/request_limits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

// A caller's 0 is no limit.
int64_t Least(int64_t servers, int64_t callers) {
  return callers > 0 ? std::min(servers, callers) : servers;
}

absl::Status CheckShape(const char* name, const Shape& shape, int64_t most) {
  const auto longest = std::max_element(shape.begin(), shape.end());
  if (longest == shape.end() || *longest <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      name, ": shape ", ShapeToString(shape), " has a dimension of ", *longest,
      " (at most ", most, ", max_dimension)"));
}

// Whether a result has as much as a number for every row and key, or may have.
bool IsOfEachKey(ResultField result) {
  switch (result) {
    case ResultField::kOutput:
    case ResultField::kLse:
    case ResultField::kKeyWeights:
      return false;
    case ResultField::kWeights:
    case ResultField::kTopKIndices:
    case ResultField::kTopKWeights:
    case ResultField::kScores:
      return true;
  }
  return true;
}

}  // namespace

RequestLimits LimitsOfRequest(const ServerOptions& options,
                              const Caller* caller) {
  const CallerLimits own = caller != nullptr ? caller->limits : CallerLimits();
  return {options.max_response_bytes,
          Least(options.max_dimension, own.max_dimension),
          Least(options.max_weights_bytes, own.max_weights_bytes)};
}

absl::Status CheckKeyValueDimensions(const Shape& key, const Shape& value,
                                     int64_t most) {
  absl::Status status = CheckShape("key", key, most);
  return status.ok() ? CheckShape("value", value, most) : status;
}

absl::Status CheckLimits(const AttentionProblem& problem,
                         const ValidatedBatch& batch, const Results& results,
                         const RequestLimits& limits) {
  const int64_t most = limits.max_dimension;
  absl::Status status = CheckShape("query", problem.query.shape, most);
  if (!status.ok()) return status;
  for (const KeyValueBlock& block : problem.key_value) {
    status = CheckKeyValueDimensions(block.key.shape, block.value.shape, most);
    if (!status.ok()) return status;
  }
  if (!problem.key_value_of_entries.empty()) {
    // What an entry reads of its sequence, with what it appends: in no
    // request's shapes.
    for (const ValidatedProblem& entry : batch.problems) {
      status = CheckKeyValueDimensions(
          {entry.kv_heads, entry.key_length, entry.key_width},
          {entry.kv_heads, entry.key_length, entry.value_width}, most);
      if (!status.ok()) return status;
    }
  }
  for (const Result& result : results.sent()) {
    if (!IsOfEachKey(result.wanted.result)) continue;
    if (result.bytes <= limits.max_weights_bytes) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        Name(result.wanted.result), ": shape ", ShapeToString(result.shape),
        " takes ", result.bytes, " bytes (at most ", limits.max_weights_bytes,
        ", max_weights_bytes)"));
  }
  return absl::OkStatus();
}

}  // namespace attention::server
