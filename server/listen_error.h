#ifndef ATTENTION_SERVER_LISTEN_ERROR_H_
#define ATTENTION_SERVER_LISTEN_ERROR_H_

#include <string>

#include "absl/status/status.h"

namespace attention::server {

/// "127.0.0.1:8001"; an IPv6 address gets its brackets.
std::string HostAndPort(const std::string& host, int port);

/// Why nothing can listen on host and port, which gRPC has just failed to do:
/// it says only that. INVALID_ARGUMENT where the address cannot be understood
/// or is not this machine's, UNAVAILABLE where the port is taken or not
/// allowed; the message begins with host and port.
absl::Status WhyNotListening(const std::string& host, int port);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_LISTEN_ERROR_H_
