#ifndef ATTENTION_SERVER_OPTIONS_OPTION_CHECKS_H_
#define ATTENTION_SERVER_OPTIONS_OPTION_CHECKS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/options/options.h"

namespace attention::server {

/// The bounds of every option, in one place. INVALID_ARGUMENT names the option
/// as the command line does, what it had and what was expected:
///   --grpc-port: 70000 (expected 0 to 65535)
absl::Status CheckOptions(const ServerOptions& options);

/// INVALID_ARGUMENT of options that no waiting makes right, and whether it is
/// one: a file or an address that is not there may come.
absl::Status WrongOptionError(absl::string_view message);
bool IsWrongOption(const absl::Status& status);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_OPTIONS_OPTION_CHECKS_H_
