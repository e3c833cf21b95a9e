#ifndef ATTENTION_SERVER_OPTIONS_H_
#define ATTENTION_SERVER_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace attention::server {

/// Everything that can be set about a server, with its defaults. Flags,
/// environment and config file fill this one struct, in that order of
/// precedence (server/flags.h); server/option_checks.h has the bounds.
struct ServerOptions {
  /// Where gRPC listens. Loopback unless a person chooses otherwise.
  std::string grpc_address = "127.0.0.1";
  /// 0 picks a free port.
  int grpc_port = 8001;
  /// A Unix-domain socket to listen on as well, for callers on this machine
  /// alone; at most 107 bytes, "" for none. Only this process's user can
  /// connect (mode 0600).
  std::string grpc_unix_socket;
  /// Encryption of the ports: PEM files of this server's certificate, with
  /// those of its issuers behind it, and of its key; "" for none. Read again
  /// when they change.
  std::string tls_certificate;
  std::string tls_key;
  /// PEM file of those who sign callers' certificates; then callers must have
  /// one. "" asks for none.
  std::string tls_client_ca;
  /// JSON file of the callers that are served (server/callers/callers_file.h),
  /// read again when it changes; "" serves everybody.
  std::string callers_file;
  /// Whether plain text may leave this machine.
  bool insecure = false;
  /// Whether HTTP is served, health and metrics at least, and where; port 0
  /// picks a free one.
  bool http = true;
  std::string http_address = "127.0.0.1";
  int http_port = 8002;
  /// Whether the Open Inference Protocol is served there as well.
  bool http_inference = true;
  /// Origins of web pages that may ask over HTTP ("https://example.org:8443");
  /// requests of others are refused.
  std::vector<std::string> http_allow_origin;
  /// Names by which HTTP is asked in plain text, beside IP addresses,
  /// localhost, this machine's own name and http_address. For health and
  /// metrics any does.
  std::vector<std::string> http_host;
  /// Threads that compute; 0 means one per processor that the process may use.
  int worker_threads = 0;
  /// "auto" or a backend's name.
  std::string backend = "auto";
  /// Device memory that the backend cuda takes of each device, at most; 0 means
  /// 80 % of what is free at the first request.
  int64_t cuda_memory_limit = 0;
  /// Largest message each way, 1 KiB to 2^31 - 1 bytes.
  int64_t max_request_bytes = 256LL << 20;
  int64_t max_response_bytes = 256LL << 20;
  /// Admission: requests queued or running. Beyond: RESOURCE_EXHAUSTED.
  int64_t max_requests_in_flight = 1024;
  /// Bytes of memory: half of them for messages on their way in, half for
  /// requests that were admitted, with their working memory and replies. 0
  /// means 80 % of the least that the process may have
  /// (server/memory/memory_limit.h); a server that was started knows it.
  int64_t memory_limit = 0;
  /// Per stream; beyond it the stream is not read.
  int64_t max_stream_requests_in_flight = 32;
  /// How long one request may compute; it is stopped then:
  /// RESOURCE_EXHAUSTED. 0 means for ever.
  std::chrono::milliseconds max_compute_time{300'000};
  /// Longest dimension of query, keys and values, and largest weights that one
  /// request may ask for, in the reply or in shared memory.
  int64_t max_dimension = 1LL << 24;
  int64_t max_weights_bytes = 1LL << 30;
  /// What one caller may have admitted in a second, for long: requests, and
  /// their bytes with working memory and replies. 0 means any; the callers file
  /// may say otherwise of a caller.
  int64_t max_requests_per_second = 0;
  int64_t max_bytes_per_second = 0;
  /// Connections at once, and of those from one address; each takes two file
  /// descriptors. 0 is decided at the start: as many as descriptors allow, at
  /// most 8192, and half of that.
  int64_t max_connections = 0;
  int64_t max_connections_per_peer = 0;
  /// Calls that are open on one connection; beyond it the caller's library
  /// holds them back.
  int64_t max_streams_per_connection = 256;
  /// A connection without calls is closed after it; 0 never.
  std::chrono::milliseconds connection_idle_timeout{15 * 60'000};
  /// After so long without a byte the caller is asked whether it is there, and
  /// has as long again to answer, at most 20 s; then its connection is closed.
  std::chrono::milliseconds keepalive_time{60'000};
  /// A connection is given up after it, and calls on it have the drain time to
  /// finish; 0 never.
  std::chrono::milliseconds max_connection_age{0};
  /// How long a caller may take to take a reply; beyond it the call is ended.
  std::chrono::milliseconds reply_timeout{60'000};
  /// A directory of parameter sets (server/models/model_repository.h); none
  /// where it is empty.
  std::string model_repository;
  /// Whether callers may have its folders loaded and unloaded.
  bool allow_model_control = false;
  /// Whether callers may register shared memory and have tensors read from it
  /// and written to it. They name any object that the server's user can open,
  /// so this is for callers that are trusted.
  bool allow_shared_memory = false;
  /// How long the server goes on serving after SIGTERM or SIGINT, while its
  /// health says NOT_SERVING already.
  std::chrono::milliseconds drain_delay{0};
  /// How long running requests may take to finish after that.
  std::chrono::milliseconds drain_time{30'000};
  /// trace, debug, info, warn, error or off.
  std::string log_level = "info";
  /// text for people, json for collectors.
  std::string log_format = "text";
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_OPTIONS_H_
