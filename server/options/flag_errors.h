#ifndef ATTENTION_SERVER_OPTIONS_FLAG_ERRORS_H_
#define ATTENTION_SERVER_OPTIONS_FLAG_ERRORS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace attention::server {

/// What is wrong with a command line or a config file that CLI11 refused, in
/// the words of the other checks: "--grpc-port: its value is missing".
std::string Explain(const CLI::Error& error);

/// What is wrong with an argument that is neither one of `flags`, "--grpc-port"
/// and so on, nor a value of one, with the nearest flag.
std::string ExplainUnknown(const std::string& argument,
                           const std::vector<std::string>& flags);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_OPTIONS_FLAG_ERRORS_H_
