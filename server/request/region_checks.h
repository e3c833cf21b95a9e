#ifndef ATTENTION_SERVER_REQUEST_REGION_CHECKS_H_
#define ATTENTION_SERVER_REQUEST_REGION_CHECKS_H_

#include "absl/status/status.h"
#include "server/request/attention_request.h"

namespace attention::server {

/// INVALID_ARGUMENT where a result's shared memory overlaps that of a tensor or
/// of another result, also through two regions of one object: results are
/// written while tensors are still read. Sizes are those that the caller gave.
absl::Status CheckResultsApart(const AttentionRequest& request);

/// FAILED_PRECONDITION where the memory of a region that the request uses went
/// away; to be asked when everything is written.
absl::Status CheckIntact(const AttentionRequest& request);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_REQUEST_REGION_CHECKS_H_
