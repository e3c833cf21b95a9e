#ifndef ATTENTION_CLIENT_CLI_ATTEND_COMMAND_H_
#define ATTENTION_CLIENT_CLI_ATTEND_COMMAND_H_

#include <CLI/CLI.hpp>

#include "client/cpp/cli/globals.h"

namespace attention::cli {

/// Adds `attend`. Its callback runs when the command line has been parsed and
/// leaves the exit code in `exit_code`; both references must outlive that.
void AddAttendCommand(CLI::App& app, const Globals& globals, int& exit_code);

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_ATTEND_COMMAND_H_
