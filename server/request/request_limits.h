#ifndef ATTENTION_SERVER_REQUEST_REQUEST_LIMITS_H_
#define ATTENTION_SERVER_REQUEST_REQUEST_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/batch.h"
#include "core/problem.h"
#include "core/shape.h"
#include "server/callers/caller.h"
#include "server/options/options.h"
#include "server/request/results.h"

namespace attention::server {

/// What one request may ask for, each at least 1.
struct RequestLimits {
  int64_t max_response_bytes = 0;
  int64_t max_dimension = 0;      // of query, keys, values and sequences
  int64_t max_weights_bytes = 0;  // in the reply or in a region
};

/// The server's limits, or the caller's where these are less; `caller` is null
/// where there are no callers.
RequestLimits LimitsOfRequest(const ServerOptions& options,
                              const Caller* caller);

/// OK where no extent of keys and values is above `most`, else
/// RESOURCE_EXHAUSTED with "key" or "value".
absl::Status CheckKeyValueDimensions(const Shape& key, const Shape& value,
                                     int64_t most);

/// OK where `problem`, which `batch` is of, and its results are within
/// `limits`, but for the size of the reply. RESOURCE_EXHAUSTED names the tensor
/// and the limit.
absl::Status CheckLimits(const AttentionProblem& problem,
                         const ValidatedBatch& batch, const Results& results,
                         const RequestLimits& limits);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_REQUEST_REQUEST_LIMITS_H_
