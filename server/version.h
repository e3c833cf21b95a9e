#ifndef ATTENTION_SERVER_VERSION_H_
#define ATTENTION_SERVER_VERSION_H_

namespace attention::server {

/// The version of this build ("0.1.0"), from the project's CMakeLists.txt.
const char* Version();

}  // namespace attention::server

#endif  // ATTENTION_SERVER_VERSION_H_
