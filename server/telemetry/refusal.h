#ifndef ATTENTION_SERVER_TELEMETRY_REFUSAL_H_
#define ATTENTION_SERVER_TELEMETRY_REFUSAL_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace attention::server {

/// Why a request was not computed.
enum class Refusal : uint8_t {
  kNone,
  kInvalid,         // the caller's mistake
  kTooLarge,        // never fits, or its reply does not
  kServerRequests,  // --max-requests-in-flight
  kServerMemory,    // --memory-limit
  kCallerRequests,  // half of those
  kCallerMemory,
  kCallerRate,  // its quota of a second
  kTooLate,     // would wait for most of its time
  kDraining,
  kDeadline,   // passed already
  kCancelled,  // by its caller
  kOther,
};
inline constexpr size_t kRefusalReasons = 13;

/// The reason's name in metrics: "server_memory".
const char* NameOf(Refusal refusal);

/// What a status says of it where nobody knows better.
Refusal RefusalOf(const absl::Status& status);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_REFUSAL_H_
