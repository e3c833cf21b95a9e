#ifndef ATTENTION_BENCHMARKS_LOAD_FLOORS_H_
#define ATTENTION_BENCHMARKS_LOAD_FLOORS_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "benchmarks/load/load.h"

/// What no server can be faster than on this machine: the same bytes over the
/// same kind of socket without anything around them, and a gRPC call that does
/// nothing.
namespace attention::bench {

/// Answers Ping() and EchoLoad(). In a process of its own, as a server is.
class FloorServer {
 public:
  /// Listens on free ports of 127.0.0.1 and, within `folder`, which is there,
  /// on Unix-domain sockets "ping.sock" and "echo.sock".
  static absl::StatusOr<std::unique_ptr<FloorServer>> Start(
      const std::string& folder);
  virtual ~FloorServer() = default;

  /// {"ping_tcp": "tcp:127.0.0.1:1", "ping_unix": "unix:...",
  ///  "echo_tcp": "127.0.0.1:2", "echo_unix": "unix:..."}
  virtual nlohmann::json Addresses() const = 0;
};

/// Sends `send` bytes and receives `receive`, over and over, each message from
/// and to one buffer. Samples::ToJson.
absl::StatusOr<nlohmann::json> Ping(const std::string& address, int64_t send,
                                    int64_t receive, double warm_up_seconds,
                                    double seconds);

/// Calls of a FloorServer's method that answers nothing, each with the bytes
/// that `api` encodes, once. options.stream is not looked at.
absl::StatusOr<nlohmann::json> EchoLoad(const LoadOptions& options,
                                        const LoadShape& shape, const Api& api);

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_LOAD_FLOORS_H_
