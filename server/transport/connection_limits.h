#ifndef ATTENTION_SERVER_TRANSPORT_CONNECTION_LIMITS_H_
#define ATTENTION_SERVER_TRANSPORT_CONNECTION_LIMITS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/options/options.h"

namespace attention::server {

/// How many connections there may be at once.
struct ConnectionLimits {
  int64_t total = 0;
  int64_t per_peer = 0;  // of one address
};

/// What the options ask for, or what fits into `descriptors`, the file
/// descriptors that the process may open: some are left to the rest of the
/// server. INVALID_ARGUMENT names --max-connections where it does not fit.
absl::StatusOr<ConnectionLimits> DecideConnectionLimits(
    const ServerOptions& options, int64_t descriptors);

/// Raises the number of file descriptors that this process may open as far as
/// it may by itself, at most to what the largest default needs. The number.
int64_t RaiseDescriptorLimit();

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TRANSPORT_CONNECTION_LIMITS_H_
