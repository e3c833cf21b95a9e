#ifndef ATTENTION_SERVER_BASE_VERSION_H_
#define ATTENTION_SERVER_BASE_VERSION_H_

#include <string>

namespace attention::server {

/// The version of this build ("0.1.0"), from the project's CMakeLists.txt.
const char* Version();

/// The libraries that this process runs with, and their versions: "gRPC 1.51.1,
/// OpenSSL 3.0.19, ...".
std::string LinkedVersions();

}  // namespace attention::server

#endif  // ATTENTION_SERVER_BASE_VERSION_H_
