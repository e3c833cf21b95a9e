#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "client/cpp/cli/attend_command.h"
#include "client/cpp/cli/demo_command.h"
#include "client/cpp/cli/failure.h"
#include "client/cpp/cli/globals.h"
#include "client/cpp/cli/sequence_commands.h"
#include "client/cpp/cli/server_commands.h"
#include "core/nearest_name.h"

namespace {

constexpr char kDescription[] =
    "Calls an attention server: computes attention over tensors from files, "
    "and\n"
    "asks the server how it is.";

constexpr char kCommands[] = "demo, attend, sequences, health or info";

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

// What is wrong with the command line. CLI11 only lists what it did not expect.
std::string Explain(const CLI::App& app, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) {
    return error.what();
  }
  std::vector<const CLI::App*> given = {&app};
  for (size_t i = 0; i < given.size(); ++i) {
    for (const CLI::App* command : given[i]->get_subcommands()) {
      given.push_back(command);
    }
  }
  std::vector<std::string> flags;
  for (const CLI::App* command : given) {
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        flags.push_back("--" + name);
      }
    }
  }
  for (const std::string& argument : app.remaining(/*recurse=*/true)) {
    if (argument.rfind('-', 0) != 0) continue;
    const std::string flag = argument.substr(0, argument.find('='));
    return flag + ": unknown option (the nearest is " +
           attention::NearestName(flag, flags) + ")";
  }
  if (app.get_subcommands().empty()) {
    return "'" + app.remaining().front() + "': no command (expected " +
           kCommands + ")";
  }
  return error.what();
}

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
    return cli::Report(cli::UsageError(Explain(app, error) +
                                       " (attention-client --help says more)"));
  }
  if (app.get_subcommands().empty()) {
    return cli::Report(cli::UsageError(std::string("no command given: ") +
                                       kCommands +
                                       " (attention-client --help says more)"));
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
