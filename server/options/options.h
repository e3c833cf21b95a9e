#ifndef ATTENTION_SERVER_OPTIONS_OPTIONS_H_
#define ATTENTION_SERVER_OPTIONS_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace attention::server {

/// Everything that can be set about a server, with its defaults. Each has a row
/// in server/options/option_table.cc, which says what it means, its bounds, and
/// what 0 or nothing stands for; flags, environment and config file fill this
/// one struct, in that order of precedence (server/options/flags.h). Sizes are
/// in bytes.
struct ServerOptions {
  // Listening
  std::string grpc_address = "127.0.0.1";
  int grpc_port = 8001;
  std::string grpc_unix_socket;
  bool http = true;
  std::string http_address = "127.0.0.1";
  int http_port = 8002;
  bool http_inference = true;
  /// Origins of web pages ("https://example.org:8443"), and names of this
  /// server (server/http/port/http_access.h).
  std::vector<std::string> http_allow_origin;
  std::vector<std::string> http_host;
  std::string ready_file;
  std::chrono::milliseconds drain_delay{0};
  std::chrono::milliseconds drain_time{30'000};

  // Encryption
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_client_ca;
  std::string peers_ca;
  bool insecure = false;

  // Computing
  int worker_threads = 0;
  std::string backend = "auto";
  int64_t cuda_memory_limit = 0;

  // Limits
  int64_t max_request_bytes = 256LL << 20;
  int64_t max_response_bytes = 256LL << 20;
  int64_t max_requests_in_flight = 1024;
  /// A server that was started knows it: it is not 0 there.
  int64_t memory_limit = 0;
  int64_t max_stream_requests_in_flight = 32;
  int64_t max_dimension = 1LL << 24;
  int64_t max_weights_bytes = 1LL << 30;
  /// Of one caller, of whom the callers file may say otherwise.
  int64_t max_requests_per_second = 0;
  int64_t max_bytes_per_second = 0;
  std::chrono::milliseconds max_compute_time{300'000};
  /// Each connection takes two file descriptors.
  int64_t max_connections = 0;
  int64_t max_connections_per_peer = 0;
  int64_t max_streams_per_connection = 256;
  std::chrono::milliseconds connection_idle_timeout{15 * 60'000};
  std::chrono::milliseconds keepalive_time{60'000};
  std::chrono::milliseconds max_connection_age{0};
  std::chrono::milliseconds reply_timeout{60'000};

  // Keys that stay. A server that was started knows the limit: not 0 there.
  int64_t resident_memory_limit = 0;
  bool resident_evict = false;
  std::chrono::milliseconds resident_idle_limit{60 * 60'000};
  std::string resident_folder;

  // Models
  std::string model_repository;

  // Trust
  std::string callers_file;
  /// Servers that this one asks (server/shards/peer_list.h).
  std::vector<std::string> peers;
  bool allow_shared_memory = false;
  bool allow_model_control = false;

  // Logging
  std::string log_level = "info";
  std::string log_format = "text";
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_OPTIONS_OPTIONS_H_
