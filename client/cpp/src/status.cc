#include "client/cpp/src/status.h"

#include <grpcpp/support/status.h>

#include "client/cpp/src/wire.h"

namespace attention::client {

absl::Status ToAbslStatus(const grpc::Status& status) {
  return StatusFromCode(static_cast<int>(status.error_code()),
                        status.error_message());
}

}  // namespace attention::client
