#ifndef ATTENTION_CLIENT_CHANNEL_H_
#define ATTENTION_CLIENT_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>

#include "attention_client/client.h"

namespace attention::client {

/// INVALID_ARGUMENT, naming the option, where one is out of range.
absl::Status CheckOptions(const ClientOptions& options);

/// gRPC's own retries of the unary methods, as a service config in JSON
/// (https://github.com/grpc/proposal/blob/master/A6-client-retries.md). Not of
/// those that make sequences: done twice, they would make two, or say that the
/// name is taken.
std::string ServiceConfig(const ClientOptions& options);

/// A channel with these options, which CheckOptions() let pass.
std::shared_ptr<grpc::Channel> MakeChannel(
    const ClientOptions& options,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials);

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_CHANNEL_H_
