#include "server/scheduling/retry_after.h"

#include <utility>

#include "core/store/store.h"
#include "server/base/out_of_memory.h"

namespace attention::server {

absl::Status RetryAfter(absl::Status status, std::chrono::nanoseconds time) {
  SetRetryTime(std::chrono::ceil<std::chrono::milliseconds>(time), status);
  return status;
}

absl::Status OrTryAgain(absl::Status status, bool repeatable) {
  if (status.ok()) return status;
  const bool never_fits = status.ErasePayload(store::kNeverFits);
  if (never_fits || !repeatable || !absl::IsResourceExhausted(status)) {
    return status;
  }
  return RetryAfter(std::move(status), kTryAgain);
}

absl::Status OutOfMemoryForNow() {
  static const auto& status = *new absl::Status(OrTryAgain(OutOfMemory()));
  return status;
}

}  // namespace attention::server
