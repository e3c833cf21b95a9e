#ifndef ATTENTION_CLIENT_CLI_SEQUENCE_COMMANDS_H_
#define ATTENTION_CLIENT_CLI_SEQUENCE_COMMANDS_H_

#include <CLI/CLI.hpp>

#include "client/cpp/cli/globals.h"

namespace attention::cli {

/// Adds `sequences` with its own commands: list, describe, delete, export and
/// import. Their callbacks run when the command line has been parsed and leave
/// the exit code in `exit_code`; both references must outlive that.
void AddSequenceCommands(CLI::App& app, const Globals& globals, int& exit_code);

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_SEQUENCE_COMMANDS_H_
