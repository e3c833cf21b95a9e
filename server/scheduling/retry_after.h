#ifndef ATTENTION_SERVER_SCHEDULING_RETRY_AFTER_H_
#define ATTENTION_SERVER_SCHEDULING_RETRY_AFTER_H_

#include <chrono>

#include "absl/status/status.h"
#include "proto/status_details.h"

namespace attention::server {

/// After which others may have given memory, or places, back.
inline constexpr std::chrono::milliseconds kTryAgain{100};

/// `status` with the time after which it makes sense to try again, as
/// SetRetryTime() gives it and RetryTimeOf() reads it.
absl::Status RetryAfter(absl::Status status, std::chrono::nanoseconds time);

/// RESOURCE_EXHAUSTED of what had no memory, and failed for no other reason:
/// with kTryAgain, unless it never fits (store::kNeverFits, which is for nobody
/// else), or is not `repeatable`. Any other status as it is.
absl::Status OrTryAgain(absl::Status status, bool repeatable = true);

/// OutOfMemory() of what is repeatable: with kTryAgain.
absl::Status OutOfMemoryForNow();

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_RETRY_AFTER_H_
