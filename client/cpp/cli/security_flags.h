#ifndef ATTENTION_CLIENT_CLI_SECURITY_FLAGS_H_
#define ATTENTION_CLIENT_CLI_SECURITY_FLAGS_H_

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"
#include "attention_client/client.h"

namespace attention::cli {

/// How a program gets to a server that does not trust everybody.
struct SecurityFlags {
  bool tls = false;
  client::TlsOptions files;
  std::string token_file;
};

/// Adds --tls, --tls-ca, --tls-certificate, --tls-key, --tls-server-name and
/// --token-file. Each also comes from the environment, as ATTENTION_CLIENT_TLS
/// and so on.
void AddSecurityFlags(CLI::App& app, SecurityFlags& flags);

/// Fills in `options`; reads the token. INVALID_ARGUMENT names the flag.
absl::Status ApplySecurityFlags(const SecurityFlags& flags,
                                client::ClientOptions& options);

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_SECURITY_FLAGS_H_
