#ifndef ATTENTION_CLIENT_SECURITY_H_
#define ATTENTION_CLIENT_SECURITY_H_

#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "attention_client/client.h"

namespace attention::client {

/// INVALID_ARGUMENT, naming the option, where the token or what stands beside
/// it is not as client.h says.
absl::Status CheckSecurity(const ClientOptions& options);

/// The credentials that the options ask for: given, TLS or plain text.
/// INVALID_ARGUMENT names the file that is of no use.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const ClientOptions& options);

/// A file's bytes; none where it is empty, or cannot be read.
std::string ReadFile(const std::string& path);

/// What belongs to it beside the credentials: the name that TLS expects, and
/// that no proxy of the environment (http_proxy) comes between this machine and
/// itself.
void SetSecurity(const ClientOptions& options,
                 grpc::ChannelArguments& arguments);

/// Puts the token into a call's metadata, where there is one.
void AddToken(const ClientOptions& options, grpc::ClientContext& context);

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_SECURITY_H_
