#include "client/cpp/src/status.h"

#include <grpcpp/support/status.h>

#include <chrono>

#include "attention_client/client.h"
#include "client/cpp/src/wire.h"
#include "proto/status_details.h"

namespace attention::client {

absl::Status ToAbslStatus(const grpc::Status& status) {
  absl::Status told = StatusFromCode(static_cast<int>(status.error_code()),
                                     status.error_message());
  TakeStatusDetails(status.error_details(), told);
  return told;
}

absl::Status ToAbslStatus(const v1::Error& error) {
  absl::Status told = StatusFromCode(error.code(), error.message());
  if (error.has_retry_after_ms()) {
    SetRetryTime(std::chrono::milliseconds(error.retry_after_ms()), told);
  }
  return told;
}

std::optional<std::chrono::milliseconds> RetryAfter(
    const absl::Status& status) {
  return RetryTimeOf(status);
}

}  // namespace attention::client
