#ifndef ATTENTION_SERVER_OPTIONS_FLAGS_H_
#define ATTENTION_SERVER_OPTIONS_FLAGS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "server/options/options.h"

namespace attention::server {

/// What the command line came to: options to start with, or a reason to end.
struct ParsedFlags {
  ServerOptions options;

  struct Exit {
    int code = 0;      // 0 for --help and --version, 2 for a wrong option
    std::string text;  // for stdout where code is 0, else for stderr
  };
  std::optional<Exit> exit;
};

/// Reads an environment variable; nothing where it is not set.
using Environment =
    std::function<std::optional<std::string>(const std::string& name)>;

/// The environment of this process.
std::optional<std::string> ProcessEnvironment(const std::string& name);

/// Fills the options from `arguments` (without the program's name), then the
/// environment (ATTENTION_GRPC_PORT for --grpc-port), then the file that
/// --config or ATTENTION_CONFIG names: the first of them that sets an option
/// wins. An empty environment variable counts as not set. Options, environment
/// and file are checked alike; an unknown flag or key in the file is an error.
ParsedFlags ParseFlags(const std::vector<std::string>& arguments,
                       const Environment& environment = ProcessEnvironment);

/// The names of the variables that ParseFlags() reads, one for each option.
std::vector<std::string> OptionVariables();

}  // namespace attention::server

#endif  // ATTENTION_SERVER_OPTIONS_FLAGS_H_
