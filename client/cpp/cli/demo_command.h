#ifndef ATTENTION_CLIENT_CLI_DEMO_COMMAND_H_
#define ATTENTION_CLIENT_CLI_DEMO_COMMAND_H_

#include <CLI/CLI.hpp>

#include "client/cpp/cli/globals.h"

namespace attention::cli {

/// Adds `demo`: the two toy examples with which the textbook "Dive into Deep
/// Learning" (section "Attention Scoring Functions") shows scaled dot-product
/// and additive attention. Its callback runs when the command line has been
/// parsed and leaves the exit code in `exit_code`; both references must outlive
/// that.
void AddDemoCommand(CLI::App& app, const Globals& globals, int& exit_code);

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_DEMO_COMMAND_H_
