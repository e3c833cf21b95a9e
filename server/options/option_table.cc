#include "server/options/option_table.h"

#include <chrono>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/engine.h"
#include "server/http/port/http_access.h"
#include "server/shards/peer_list.h"
#include "server/transport/unix_socket.h"

namespace attention::server {
namespace {

using O = ServerOptions;
using Int = NumberOption<int>;
using Int64 = NumberOption<int64_t>;

constexpr char kListening[] = "Listening";
constexpr char kEncryption[] = "Encryption";
constexpr char kComputing[] = "Computing";
constexpr char kLimits[] = "Limits";
constexpr char kResident[] = "Keys that stay";
constexpr char kModels[] = "Models";
constexpr char kTrust[] = "Trust";
constexpr char kLogging[] = "Logging";

constexpr char kHost[] = "an IP address or a host name";
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
// gRPC and protobuf count a message's bytes in an int.
constexpr int64_t kLargestMessage = std::numeric_limits<int32_t>::max();
constexpr int64_t kMillion = 1'000'000;
constexpr std::chrono::milliseconds kLeastTime{1};

}  // namespace

const std::vector<OptionRow>& OptionTable() {
  static const auto& table = *new std::vector<OptionRow>{
      {"--grpc-address", kListening,
       TextOption{&O::grpc_address, "ADDRESS", kHost},
       "Where gRPC listens; loopback unless you say so"},
      {"--grpc-port", kListening, Int{&O::grpc_port, 0, 65535},
       "Its port, 0 to 65535; 0 picks a free one, which the log names"},
      {"--grpc-unix-socket", kListening,
       TextOption{.member = &O::grpc_unix_socket,
                  .type = "PATH",
                  .most_bytes = kMostSocketPathBytes},
       "A Unix-domain socket to listen on as well, for callers on this machine "
       "that run as the same user (mode 0600)"},
      {"--http", kListening, SwitchOption{&O::http},
       "Whether HTTP is served: health, metrics, inference; --http=false "
       "switches it off"},
      {"--http-address", kListening,
       TextOption{&O::http_address, "ADDRESS", kHost},
       "Where HTTP listens; loopback unless you say so"},
      {"--http-port", kListening, Int{&O::http_port, 0, 65535},
       "Its port, 0 to 65535; 0 picks a free one, which the log names"},
      {"--http-inference", kListening, SwitchOption{&O::http_inference},
       "Whether the Open Inference Protocol is served over HTTP too; "
       "--http-inference=false leaves health and metrics"},
      {"--http-allow-origin", kListening,
       ListOption{&O::http_allow_origin, "ORIGIN", &IsOrigin,
                  "an origin as https://example.org or http://127.0.0.1:3000"},
       "Web pages that may ask over HTTP, as https://example.org: several with "
       "commas, or the flag again; others get 403"},
      {"--http-host", kListening,
       ListOption{&O::http_host, "NAME", &IsHostNameOrAny,
                  "a host's name, without a port, or *"},
       "Names by which inference over HTTP is asked for in plain text, beside "
       "IP addresses, localhost, this machine's own name and --http-address; * "
       "for any; likewise"},
      {"--ready-file", kListening, TextOption{&O::ready_file, "FILE"},
       "A file that is written once the server listens, with the address of "
       "gRPC, whatever is logged"},
      {"--drain-delay", kListening, TimeOption{&O::drain_delay},
       "How long calls are still served after SIGTERM, SIGINT or SIGQUIT, "
       "while health says NOT_SERVING: time for callers and proxies to see it"},
      {"--drain-time", kListening, TimeOption{&O::drain_time},
       "How long running requests may take to finish after that"},

      {"--tls-certificate", kEncryption,
       TextOption{&O::tls_certificate, "FILE"},
       "This server's certificate and its issuers', in PEM: gRPC's port then "
       "takes TLS alone, HTTP's takes it too. Read again when it changes, as "
       "the next two"},
      {"--tls-key", kEncryption, TextOption{&O::tls_key, "FILE"},
       "Its private key, in PEM"},
      {"--tls-client-ca", kEncryption, TextOption{&O::tls_client_ca, "FILE"},
       "Who signs callers' certificates, in PEM: callers must then show one"},
      {"--peers-ca", kEncryption, TextOption{&O::peers_ca, "FILE"},
       "Who signs the certificates of --peers, in PEM: they are then asked "
       "over TLS, and shown this server's certificate"},
      {"--insecure", kEncryption, SwitchOption{&O::insecure},
       "Plain text beyond loopback: for a network that nobody else reads, or "
       "behind a proxy that encrypts"},

      {"--worker-threads", kComputing, Int{&O::worker_threads, 0, 4096},
       "Threads that compute; 0 means one per processor that the process may "
       "use, in a container of its quota"},
      {"--backend", kComputing,
       ChoiceOption{&O::backend, "NAME", BackendNames()},
       absl::StrCat("One of ", absl::StrJoin(BackendNames(), ", "),
                    "; auto takes the fastest that supports a request")},
      {"--cuda-memory-limit", kComputing, SizeOption{&O::cuda_memory_limit, 0},
       "Memory of each GPU that the backend cuda takes; a request that needs "
       "more: RESOURCE_EXHAUSTED. 0 means 80 % of what is free"},

      {"--max-request-bytes", kLimits,
       SizeOption{&O::max_request_bytes, 1024, kLargestMessage},
       "Largest request, 1KiB to 2147483647 bytes"},
      {"--max-response-bytes", kLimits,
       SizeOption{&O::max_response_bytes, 1024, kLargestMessage},
       "Largest reply, likewise; a larger one is refused before computing"},
      {"--max-requests-in-flight", kLimits,
       Int64{&O::max_requests_in_flight, 1, kMillion},
       "Requests queued or running; beyond it: RESOURCE_EXHAUSTED"},
      // Less than 16 MiB would be spent on connections alone.
      {"--memory-limit", kLimits,
       SizeOption{&O::memory_limit, 16 << 20, kAny, /*or_zero=*/true},
       "Memory, 16MiB or more: half of it for messages on their way in, half "
       "for requests with their working memory and replies; beyond it: "
       "RESOURCE_EXHAUSTED. 0 means 80 % of the container's or the machine's"},
      {"--max-stream-requests-in-flight", kLimits,
       Int64{&O::max_stream_requests_in_flight, 1, kMillion},
       "Requests in flight on one stream; beyond it the stream is not read "
       "until a reply is out"},
      {"--max-dimension", kLimits, Int64{&O::max_dimension, 1, kAny},
       "Longest dimension of query, keys and values; beyond it: "
       "RESOURCE_EXHAUSTED, as for the next three"},
      {"--max-weights-bytes", kLimits, SizeOption{&O::max_weights_bytes, 1},
       "Largest weights, or scores, in the reply or in shared memory"},
      {"--max-requests-per-second", kLimits,
       Int64{&O::max_requests_per_second, 0, 1000 * kMillion},
       "Requests of one caller in a second, for long; 0 means any"},
      {"--max-bytes-per-second", kLimits,
       SizeOption{&O::max_bytes_per_second, 0},
       "Bytes of its requests with working memory and replies, likewise"},
      {"--max-compute-time", kLimits, TimeOption{&O::max_compute_time},
       "How long one request may compute; it is stopped then: "
       "RESOURCE_EXHAUSTED. 0 means for ever"},
      {"--max-connections", kLimits, Int64{&O::max_connections, 0, kMillion},
       "Connections at once; beyond it they are closed at once. 0 means as "
       "many as file descriptors allow, at most 8192"},
      {"--max-connections-per-peer", kLimits,
       Int64{&O::max_connections_per_peer, 0, kMillion},
       "Likewise, of one address; 0 means half of --max-connections"},
      {"--max-streams-per-connection", kLimits,
       Int64{&O::max_streams_per_connection, 1, kMillion},
       "Calls open on one connection; callers hold back further ones"},
      {"--connection-idle-timeout", kLimits,
       TimeOption{&O::connection_idle_timeout},
       "A connection without calls is closed after it; 0 never"},
      {"--keepalive-time", kLimits, TimeOption{&O::keepalive_time, kLeastTime},
       "After so long without a byte the caller is pinged; it has as long "
       "again "
       "to answer, at most 20s, before its connection is closed"},
      {"--max-connection-age", kLimits, TimeOption{&O::max_connection_age},
       "A connection is given up after it, which spreads callers over servers; "
       "its calls have --drain-time to finish; 0 never"},
      {"--reply-timeout", kLimits, TimeOption{&O::reply_timeout, kLeastTime},
       "How long a caller may take to take a reply; then its call is ended"},

      {"--resident-memory-limit", kResident,
       SizeOption{&O::resident_memory_limit, 1 << 20, kAny, /*or_zero=*/true},
       "Memory of sequences (KeyValueService), 1MiB or more, beside "
       "--memory-limit; beyond it: RESOURCE_EXHAUSTED. 0 means an eighth of "
       "--memory-limit"},
      {"--resident-evict", kResident, SwitchOption{&O::resident_evict},
       "Where that memory is out, the sequence that was not used for longest, "
       "of the caller who holds most, goes to make room"},
      {"--resident-idle-limit", kResident, TimeOption{&O::resident_idle_limit},
       "A sequence that was not used for so long goes, unless it was made with "
       "a limit of its own; 0 never"},
      {"--resident-folder", kResident, TextOption{&O::resident_folder, "DIR"},
       "Where callers may have sequences written to, and read from: files of "
       "the safetensors format, which all of them share; with --callers-file "
       "those who have the right sequence_files. Without it neither can be "
       "asked for"},

      {"--model-repository", kModels, TextOption{&O::model_repository, "DIR"},
       "A directory of parameter sets, one folder for each: config.json with "
       "the scoring function and its options, parameters.safetensors with its "
       "weights. Requests then name the folder instead of sending them"},

      // What is off until a person says that every caller may do it.
      {"--callers-file", kTrust, TextOption{&O::callers_file, "FILE"},
       "JSON: callers by their tokens and certificates, with what each may do "
       "and take; others are refused. Read again when it changes. Without it, "
       "everybody who reaches the server may call"},
      {"--peers", kTrust,
       ListOption{&O::peers, "HOST:PORT", &IsPeerEntry,
                  "HOST:PORT, with a name, an address or a network as "
                  "10.1.0.0/16, and a port or *"},
       "Servers that callers may have this one ask for other shards of a "
       "sequence (ShardService): several with commas, or the flag again. It "
       "asks with the caller's token. Without it, none"},
      {"--allow-shared-memory", kTrust, SwitchOption{&O::allow_shared_memory},
       "Callers on this machine may register POSIX shared memory, and CUDA "
       "memory where the server computes on a GPU (the Open Inference "
       "Protocol's extensions), and leave tensors there instead of sending "
       "them. They can name any object in /dev/shm that the server's user may "
       "open, another program's too: for trusted callers"},
      {"--allow-model-control", kTrust, SwitchOption{&O::allow_model_control},
       "Callers may have folders of --model-repository loaded again, and "
       "unload "
       "them for everybody"},

      {"--log-level", kLogging,
       ChoiceOption{&O::log_level,
                    "LEVEL",
                    {"trace", "debug", "info", "warning", "error", "off"}},
       "trace, debug (a line per request), info, warning, error or off"},
      {"--log-format", kLogging,
       ChoiceOption{&O::log_format, "FORMAT", {"text", "json"}},
       "text for people, json (one object per line) for collectors"},
  };
  return table;
}

}  // namespace attention::server
