#ifndef ATTENTION_SERVER_OPTIONS_OPTION_CHECKS_H_
#define ATTENTION_SERVER_OPTIONS_OPTION_CHECKS_H_

#include "absl/status/status.h"
#include "server/options/options.h"

namespace attention::server {

/// The bounds of every option, in one place. INVALID_ARGUMENT names the option
/// as the command line does, what it had and what was expected:
///   --grpc-port: 70000 (expected 0 to 65535)
absl::Status CheckOptions(const ServerOptions& options);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_OPTIONS_OPTION_CHECKS_H_
