#ifndef ATTENTION_CLIENT_TLS_FILES_H_
#define ATTENTION_CLIENT_TLS_FILES_H_

#include <grpcpp/security/credentials.h>

#include "absl/status/statusor.h"
#include "attention_client/client.h"

namespace attention::client {

/// What the files hold, which CheckSecurity() let pass. INVALID_ARGUMENT names
/// the field of a file that cannot be read, or that gRPC cannot use: gRPC
/// itself would end every call with UNAVAILABLE, as if no server were there.
absl::StatusOr<grpc::SslCredentialsOptions> ReadTlsFiles(const TlsOptions& tls);

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_TLS_FILES_H_
