#ifndef ATTENTION_CLIENT_CHANNEL_H_
#define ATTENTION_CLIENT_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
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

/// How a connection is found that a network has dropped without a word: after
/// `time` without a byte, while calls wait, the server is asked for a sign of
/// life and has `timeout` to give it. The same as the Python client's.
struct Keepalive {
  std::chrono::milliseconds time{30'000};
  std::chrono::milliseconds timeout{10'000};
};

/// A channel with these options, which CheckOptions() let pass.
std::shared_ptr<grpc::Channel> MakeChannel(
    const ClientOptions& options,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    const Keepalive& keepalive = {});

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_CHANNEL_H_
