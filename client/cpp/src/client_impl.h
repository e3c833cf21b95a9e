#ifndef ATTENTION_CLIENT_CLIENT_IMPL_H_
#define ATTENTION_CLIENT_CLIENT_IMPL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>

#include "absl/strings/string_view.h"
#include "attention/v1/attention.grpc.pb.h"
#include "attention_client/client.h"
#include "client/cpp/src/request_encoder.h"
#include "client/cpp/src/status.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace attention::client {

/// What a client is made of: its options, channels and stubs.
struct Client::Impl {
  Impl(const ClientOptions& client_options,
       const std::shared_ptr<grpc::ChannelCredentials>& credentials);

  /// What every call has: its deadline, and who makes it; and of a call on a
  /// sequence, given its name, what leads a proxy to the server that has it.
  void Prepare(grpc::ClientContext& context,
               absl::string_view sequence = {}) const;

  /// For messages that carry tensors: a stub that tries again where the call
  /// may be `repeatable`, else one that never does.
  grpc::GenericStub& Raw(bool repeatable) const {
    return repeatable ? raw : raw_once;
  }

  /// A blocking call of KeyValueService, with messages that are classes; on the
  /// sequence of a name, or on none.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(
      grpc::Status (v1::KeyValueService::Stub::*method)(grpc::ClientContext*,
                                                        const Request&,
                                                        Response*),
      const Request& request, absl::string_view sequence) const {
    grpc::ClientContext context;
    Prepare(context, sequence);
    Response response;
    const grpc::Status status =
        (key_values.*method)(&context, request, &response);
    if (!status.ok()) return ToAbslStatus(status);
    return response;
  }

  /// As AppendToSequence().
  absl::StatusOr<AppendedKeys> Append(const SequenceLayer& to,
                                      const RowsToSend& rows) const;

  const ClientOptions options;
  const std::shared_ptr<grpc::Channel> channel;
  /// Connects when it is first used. gRPC's retries are a channel's, and of all
  /// calls of a method: what must not be done twice needs another channel.
  const std::shared_ptr<grpc::Channel> once;
  /// Stubs have no state beyond the channel; their methods are not const.
  mutable v1::AttentionService::Stub attention;
  mutable v1::KeyValueService::Stub key_values;
  mutable grpc::GenericStub raw;
  mutable grpc::GenericStub raw_once;
  mutable grpc::health::v1::Health::Stub health;
};

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_CLIENT_IMPL_H_
