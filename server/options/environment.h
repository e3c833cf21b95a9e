#ifndef ATTENTION_SERVER_OPTIONS_ENVIRONMENT_H_
#define ATTENTION_SERVER_OPTIONS_ENVIRONMENT_H_

#include <string>
#include <vector>

namespace attention::server {

/// A line for each variable of `environment` ("NAME=VALUE") whose name begins
/// with ATTENTION_ and that nothing reads, with the nearest of `known`: most
/// likely an option that is misspelt. No line for the variables of the client
/// and of the kernels, nor for those that Kubernetes sets for a service that is
/// called attention.
std::vector<std::string> UnknownVariables(
    const std::vector<std::string>& environment,
    const std::vector<std::string>& known);

/// The environment of this process, as "NAME=VALUE".
std::vector<std::string> ProcessVariables();

}  // namespace attention::server

#endif  // ATTENTION_SERVER_OPTIONS_ENVIRONMENT_H_
