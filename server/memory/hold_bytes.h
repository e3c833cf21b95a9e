#ifndef ATTENTION_SERVER_MEMORY_HOLD_BYTES_H_
#define ATTENTION_SERVER_MEMORY_HOLD_BYTES_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace attention::server {

/// Asks for memory that a request takes beyond its message's bytes, before it
/// is taken. Other requests may run within; what takes long to read asks for 0
/// bytes now and then, for that. A failure is what the caller of the request
/// gets: RESOURCE_EXHAUSTED or UNAVAILABLE, or why the request was stopped.
using HoldBytes = absl::FunctionRef<absl::Status(int64_t bytes)>;

/// Where nobody counts.
inline absl::Status HoldUncounted(int64_t) { return absl::OkStatus(); }

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MEMORY_HOLD_BYTES_H_
