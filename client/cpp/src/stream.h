#ifndef ATTENTION_CLIENT_STREAM_H_
#define ATTENTION_CLIENT_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <functional>
#include <vector>

#include "attention_client/client.h"

namespace attention::client {

/// Client::AttendMany() over one call of `stub`, whose deadline `context`
/// holds.
absl::Status RunStream(
    grpc::GenericStub& stub, grpc::ClientContext& context,
    int64_t max_message_bytes, const std::vector<AttendRequest>& requests,
    const std::function<void(size_t, absl::StatusOr<AttendResult>)>& on_reply);

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_STREAM_H_
