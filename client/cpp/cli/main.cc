#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

#include "client/cpp/cli/attend_command.h"
#include "client/cpp/cli/demo_command.h"
#include "client/cpp/cli/failure.h"
#include "client/cpp/cli/globals.h"
#include "client/cpp/cli/sequence_commands.h"
#include "client/cpp/cli/server_commands.h"

namespace {

constexpr char kDescription[] =
    "Calls an attention server: computes attention over tensors from files, "
    "and\n"
    "asks the server how it is.";

constexpr char kFooter[] = R"(Examples:
  attention-client demo
  attention-client --server 10.0.0.7:8001 info
  attention-client attend --query q.npy --key k.npy --value v.npy --output out.safetensors
  attention-client attend --input tests/data/minilm_layer3.safetensors --heatmap 1,11
  attention-client --server unix:/run/attention/grpc.sock info
  attention-client sequences list
  attention-client health && echo ready

attention-client COMMAND --help says more about a command.
Exit codes: 0 success, 1 failure, 2 wrong usage.)";

// Sets up the commands, runs the one that is asked for and gives its exit code.
int Run(int argc, char** argv) {
  namespace cli = attention::cli;
  int exit_code = cli::kExitSuccess;
  cli::Globals globals;
  CLI::App app(kDescription, "attention-client");
  app.footer(kFooter);
  app.set_version_flag("--version", "attention-client " ATTENTION_VERSION);
  cli::AddGlobalFlags(app, globals);
  cli::AddDemoCommand(app, globals, exit_code);
  cli::AddAttendCommand(app, globals, exit_code);
  cli::AddSequenceCommands(app, globals, exit_code);
  cli::AddServerCommands(app, globals, exit_code);
  // The commands run while the command line is parsed.
  for (const std::string& line : cli::MisspeltVariables(app, environ)) {
    cli::Note(line);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help and --version end here too, with code 0.
    if (error.get_exit_code() == 0) return app.exit(error);
    return cli::Report(cli::UsageError(std::string(error.what()) +
                                       " (attention-client --help says more)"));
  }
  if (app.get_subcommands().empty()) {
    return cli::Report(cli::UsageError(
        "no command given: demo, attend, sequences, health or info "
        "(attention-client --help says more)"));
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  // The status that a call ends with says what gRPC would log beside it.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  // What libraries throw, out of memory above all, is a failure like another.
  try {
    const int exit_code = Run(argc, argv);
    if (std::cout.flush()) return exit_code;
    return attention::cli::Report(
        absl::DataLossError("standard output: cannot be written"));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attention-client: %s\n", error.what());
  }
  return attention::cli::kExitFailure;
}
