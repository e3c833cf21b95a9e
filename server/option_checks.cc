#include "server/option_checks.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/engine.h"
#include "server/http/http_access.h"
#include "server/transport/unix_socket.h"

namespace attention::server {
namespace {

// gRPC and protobuf count a message's bytes in an int.
constexpr int64_t kLargestMessage = std::numeric_limits<int32_t>::max();
constexpr int64_t kSmallestMessage = 1024;
// Less would be spent on connections alone.
constexpr int64_t kLeastMemory = 16 << 20;
constexpr int64_t kMostThreads = 4096;
constexpr int64_t kMostRequests = 1'000'000;
constexpr int64_t kMostPerSecond = 1'000'000'000;
constexpr int64_t kMostConnections = 1'000'000;
constexpr int64_t kLongestMs = 24LL * 60 * 60 * 1000;

absl::Status CheckRange(absl::string_view flag, int64_t value, int64_t least,
                        int64_t most, absl::string_view unit = "") {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      flag, ": ", value, unit, " (expected ", least, " to ", most, unit, ")"));
}

absl::Status CheckTime(
    absl::string_view flag, std::chrono::milliseconds value,
    std::chrono::milliseconds least = std::chrono::milliseconds(0)) {
  return CheckRange(flag, value.count(), least.count(), kLongestMs, " ms");
}

absl::Status CheckOneOf(absl::string_view flag, const std::string& value,
                        const std::vector<std::string>& known) {
  if (absl::c_linear_search(known, value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      flag, ": '", value, "' (expected ", absl::StrJoin(known, ", "), ")"));
}

absl::Status CheckEach(absl::string_view flag,
                       const std::vector<std::string>& values,
                       bool (*is_right)(const std::string&),
                       absl::string_view expected) {
  for (const std::string& value : values) {
    if (is_right(value)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": '", value, "' (expected ", expected, ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckEncryption(const ServerOptions& options) {
  if (options.tls_certificate.empty() != options.tls_key.empty()) {
    const bool key = !options.tls_key.empty();
    return absl::InvalidArgumentError(absl::StrCat(
        key ? "--tls-key" : "--tls-certificate", ": '",
        key ? options.tls_key : options.tls_certificate, "' (expected ",
        key ? "--tls-certificate" : "--tls-key", " beside it)"));
  }
  if (options.tls_certificate.empty() && !options.tls_client_ca.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-client-ca: '", options.tls_client_ca,
                     "' (expected --tls-certificate and --tls-key beside it)"));
  }
  if (!options.tls_certificate.empty() && options.insecure) {
    return absl::InvalidArgumentError(
        "--insecure: true (expected no --tls-certificate beside it)");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOptions(const ServerOptions& options) {
  if (options.grpc_address.empty()) {
    return absl::InvalidArgumentError(
        "--grpc-address: '' (expected an IP address or a host name)");
  }
  if (options.http_address.empty()) {
    return absl::InvalidArgumentError(
        "--http-address: '' (expected an IP address or a host name)");
  }
  if (options.allow_model_control && options.model_repository.empty()) {
    return absl::InvalidArgumentError(
        "--allow-model-control: true (expected --model-repository beside it)");
  }
  if (options.grpc_unix_socket.size() > kMostSocketPathBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--grpc-unix-socket: a path of ", options.grpc_unix_socket.size(),
        " bytes (expected at most ", kMostSocketPathBytes, ")"));
  }
  const absl::Status checks[] = {
      CheckEncryption(options),
      CheckRange("--grpc-port", options.grpc_port, 0, 65535),
      CheckRange("--http-port", options.http_port, 0, 65535),
      CheckEach("--http-allow-origin", options.http_allow_origin, &IsOrigin,
                "an origin as https://example.org or http://127.0.0.1:3000"),
      CheckEach("--http-host", options.http_host, &IsHostNameOrAny,
                "a host's name, without a port, or *"),
      CheckRange("--worker-threads", options.worker_threads, 0, kMostThreads),
      CheckOneOf("--backend", options.backend, BackendNames()),
      CheckRange("--cuda-memory-limit", options.cuda_memory_limit, 0,
                 std::numeric_limits<int64_t>::max(), " bytes"),
      CheckRange("--max-request-bytes", options.max_request_bytes,
                 kSmallestMessage, kLargestMessage, " bytes"),
      CheckRange("--max-response-bytes", options.max_response_bytes,
                 kSmallestMessage, kLargestMessage, " bytes"),
      CheckRange("--max-requests-in-flight", options.max_requests_in_flight, 1,
                 kMostRequests),
      options.memory_limit == 0
          ? absl::OkStatus()
          : CheckRange("--memory-limit", options.memory_limit, kLeastMemory,
                       std::numeric_limits<int64_t>::max(), " bytes"),
      CheckRange("--max-stream-requests-in-flight",
                 options.max_stream_requests_in_flight, 1, kMostRequests),
      CheckRange("--max-dimension", options.max_dimension, 1,
                 std::numeric_limits<int64_t>::max()),
      CheckRange("--max-weights-bytes", options.max_weights_bytes, 1,
                 std::numeric_limits<int64_t>::max(), " bytes"),
      CheckRange("--max-requests-per-second", options.max_requests_per_second,
                 0, kMostPerSecond),
      CheckRange("--max-bytes-per-second", options.max_bytes_per_second, 0,
                 std::numeric_limits<int64_t>::max(), " bytes"),
      CheckRange("--max-connections", options.max_connections, 0,
                 kMostConnections),
      CheckRange("--max-connections-per-peer", options.max_connections_per_peer,
                 0, kMostConnections),
      CheckRange("--max-streams-per-connection",
                 options.max_streams_per_connection, 1, kMostRequests),
      CheckTime("--connection-idle-timeout", options.connection_idle_timeout),
      CheckTime("--keepalive-time", options.keepalive_time,
                std::chrono::milliseconds(1)),
      CheckTime("--max-connection-age", options.max_connection_age),
      CheckTime("--reply-timeout", options.reply_timeout,
                std::chrono::milliseconds(1)),
      CheckTime("--drain-delay", options.drain_delay),
      CheckTime("--drain-time", options.drain_time),
      CheckTime("--max-compute-time", options.max_compute_time),
      CheckOneOf("--log-level", options.log_level,
                 {"trace", "debug", "info", "warn", "error", "off"}),
      CheckOneOf("--log-format", options.log_format, {"text", "json"}),
  };
  for (const absl::Status& check : checks) {
    if (!check.ok()) return check;
  }
  return absl::OkStatus();
}

}  // namespace attention::server
