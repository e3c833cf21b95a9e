#ifndef ATTENTION_CLIENT_CLI_GLOBALS_H_
#define ATTENTION_CLIENT_CLI_GLOBALS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attention_client/client.h"
#include "client/cpp/cli/heatmap.h"
#include "client/cpp/cli/security_flags.h"

namespace attention::cli {

/// The flags that every command takes.
struct Globals {
  std::string server = "127.0.0.1:8001";
  double deadline_seconds = 60;
  std::string color = "auto";
  SecurityFlags security;
};

/// Adds --server, --deadline, --color and those of security_flags.h.
void AddGlobalFlags(CLI::App& app, Globals& globals);

/// A line for each variable of `environment` ("NAME=VALUE" entries, ended by a
/// null) that is not read but nearly has the name of one that is. Others that
/// begin with ATTENTION_ may be the server's.
std::vector<std::string> MisspeltVariables(const CLI::App& app,
                                           char** environment);

/// A client of the server that was named; UsageError() for values out of range.
absl::StatusOr<client::Client> Connect(const Globals& globals);

/// How heatmaps are drawn on standard output: its colours, its width, at most
/// 100 columns (which is also what a pipe or a file gets).
HeatmapStyle TerminalStyle(const Globals& globals);

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_GLOBALS_H_
