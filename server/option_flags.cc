#include "server/option_flags.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/engine.h"

namespace attention::server {
namespace {

void AddListening(ServerOptions& options, FlagSet& flags) {
  const std::string group = "Listening";
  flags.Add("--grpc-address", options.grpc_address, "ADDRESS",
            options.grpc_address,
            "Where gRPC listens; loopback unless you say so", group);
  flags.AddInteger(
      "--grpc-port", options.grpc_port,
      "Its port, 0 to 65535; 0 picks a free one, which the log names", group);
  flags.Add("--grpc-unix-socket", options.grpc_unix_socket, "PATH", "",
            "A Unix-domain socket to listen on as well, for callers on this "
            "machine that run as the same user (mode 0600)",
            group);
  flags.AddSwitch(
      "--http", options.http,
      "Whether HTTP is served: health, metrics, inference; --http=false "
      "switches it off",
      group);
  flags.Add("--http-address", options.http_address, "ADDRESS",
            options.http_address,
            "Where HTTP listens; loopback unless you say so", group);
  flags.AddInteger(
      "--http-port", options.http_port,
      "Its port, 0 to 65535; 0 picks a free one, which the log names", group);
  flags.AddSwitch(
      "--http-inference", options.http_inference,
      "Whether the Open Inference Protocol is served over HTTP too; "
      "--http-inference=false leaves health and metrics",
      group);
  flags.AddList("--http-allow-origin", options.http_allow_origin, "ORIGIN",
                "Web pages that may ask over HTTP, as https://example.org: "
                "several with commas, or the flag again; others get 403",
                group);
  flags.AddList(
      "--http-host", options.http_host, "NAME",
      "Names by which inference over HTTP is asked for in plain text, "
      "beside IP addresses, localhost, this machine's own name and "
      "--http-address; * for any; likewise",
      group);
  flags.AddTime(
      "--drain-delay", options.drain_delay, "0s",
      "How long calls are still served after SIGTERM or SIGINT, while "
      "health says NOT_SERVING: time for callers and proxies to see it",
      group);
  flags.AddTime("--drain-time", options.drain_time, "30s",
                "How long running requests may take to finish after that",
                group);
}

void AddEncryption(ServerOptions& options, FlagSet& flags) {
  const std::string group = "Encryption";
  flags.Add(
      "--tls-certificate", options.tls_certificate, "FILE", "",
      "This server's certificate and its issuers', in PEM: gRPC's port then "
      "takes TLS alone, HTTP's takes it too. Read again when it changes, as "
      "the next two",
      group);
  flags.Add("--tls-key", options.tls_key, "FILE", "", "Its private key, in PEM",
            group);
  flags.Add(
      "--tls-client-ca", options.tls_client_ca, "FILE", "",
      "Who signs callers' certificates, in PEM: callers must then show one",
      group);
  flags.AddSwitch("--insecure", options.insecure,
                  "Plain text beyond loopback: for a network that nobody else "
                  "reads, or behind a proxy that encrypts",
                  group);
}

void AddComputing(ServerOptions& options, FlagSet& flags) {
  const std::string group = "Computing";
  flags.AddInteger("--worker-threads", options.worker_threads,
                   "Threads that compute; 0 means one per processor that the "
                   "process may use, in a container of its quota",
                   group);
  flags.Add("--backend", options.backend, "NAME", "auto",
            absl::StrCat("One of ", absl::StrJoin(BackendNames(), ", "),
                         "; auto takes the fastest that supports a request"),
            group);
  flags.AddSize(
      "--cuda-memory-limit", options.cuda_memory_limit, "0",
      "Memory of each GPU that the backend cuda takes; a request that "
      "needs more: RESOURCE_EXHAUSTED. 0 means 80 % of what is free");
}

void AddLimits(ServerOptions& options, FlagSet& flags) {
  flags.AddSize("--max-request-bytes", options.max_request_bytes, "256MiB",
                "Largest request, 1KiB to 2147483647 bytes");
  flags.AddSize(
      "--max-response-bytes", options.max_response_bytes, "256MiB",
      "Largest reply, likewise; a larger one is refused before computing");
  flags.AddInteger("--max-requests-in-flight", options.max_requests_in_flight,
                   "Requests queued or running; beyond it: RESOURCE_EXHAUSTED",
                   "Limits");
  flags.AddSize(
      "--memory-limit", options.memory_limit, "0",
      "Memory, 16MiB or more: half of it for messages on their way in, "
      "half for requests with their working memory and replies; beyond "
      "it: RESOURCE_EXHAUSTED. 0 means 80 % of the container's or the "
      "machine's");
  flags.AddInteger(
      "--max-stream-requests-in-flight", options.max_stream_requests_in_flight,
      "Requests in flight on one stream; beyond it the stream is not "
      "read until a reply is out",
      "Limits");
  flags.AddInteger("--max-dimension", options.max_dimension,
                   "Longest dimension of query, keys and values; beyond it: "
                   "RESOURCE_EXHAUSTED, as for the next three",
                   "Limits");
  flags.AddSize("--max-weights-bytes", options.max_weights_bytes, "1GiB",
                "Largest weights, in the reply or in shared memory");
  flags.AddInteger("--max-requests-per-second", options.max_requests_per_second,
                   "Requests of one caller in a second, for long; 0 means any",
                   "Limits");
  flags.AddSize(
      "--max-bytes-per-second", options.max_bytes_per_second, "0",
      "Bytes of its requests with working memory and replies, likewise");
  flags.AddTime("--max-compute-time", options.max_compute_time, "5min",
                "How long one request may compute; it is stopped then: "
                "RESOURCE_EXHAUSTED. 0 means for ever",
                "Limits");
}

void AddConnectionLimits(ServerOptions& options, FlagSet& flags) {
  const std::string group = "Limits";
  flags.AddInteger("--max-connections", options.max_connections,
                   "Connections at once; beyond it they are closed at once. 0 "
                   "means as many as file descriptors allow, at most 8192",
                   group);
  flags.AddInteger(
      "--max-connections-per-peer", options.max_connections_per_peer,
      "Likewise, of one address; 0 means half of --max-connections", group);
  flags.AddInteger(
      "--max-streams-per-connection", options.max_streams_per_connection,
      "Calls open on one connection; callers hold back further ones", group);
  flags.AddTime(
      "--connection-idle-timeout", options.connection_idle_timeout, "15min",
      "A connection without calls is closed after it; 0 never", group);
  flags.AddTime("--keepalive-time", options.keepalive_time, "60s",
                "After so long without a byte the caller is pinged; it has as "
                "long again to answer, at most 20s, before its connection is "
                "closed",
                group);
  flags.AddTime("--max-connection-age", options.max_connection_age, "0s",
                "A connection is given up after it, which spreads callers over "
                "servers; its calls have --drain-time to finish; 0 never",
                group);
  flags.AddTime("--reply-timeout", options.reply_timeout, "60s",
                "How long a caller may take to take a reply; then its call is "
                "ended",
                group);
}

void AddModels(ServerOptions& options, FlagSet& flags) {
  flags.Add(
      "--model-repository", options.model_repository, "DIR", "",
      "A directory of parameter sets, one folder for each: config.json with "
      "the scoring function and its options, parameters.safetensors with "
      "its weights. Requests then name the folder instead of sending them",
      "Models");
}

// What is off until a person says that every caller may do it.
void AddTrust(ServerOptions& options, FlagSet& flags) {
  flags.Add(
      "--callers-file", options.callers_file, "FILE", "",
      "JSON: callers by their tokens and certificates, with what each may do "
      "and take; others are refused. Read again when it changes. Without it, "
      "everybody who reaches the server may call",
      "Trust");
  flags.AddSwitch(
      "--allow-shared-memory", options.allow_shared_memory,
      "Callers on this machine may register POSIX shared memory, and "
      "CUDA memory where the server computes on a GPU (the Open "
      "Inference Protocol's extensions), and leave tensors there "
      "instead of sending them. They can name any object in /dev/shm "
      "that the server's user may open, another program's too: for "
      "trusted callers");
  flags.AddSwitch(
      "--allow-model-control", options.allow_model_control,
      "Callers may have folders of --model-repository loaded again, "
      "and unload them for everybody");
}

void AddLogging(ServerOptions& options, FlagSet& flags) {
  const std::string group = "Logging";
  flags.Add("--log-level", options.log_level, "LEVEL", "info",
            "trace, debug (a line per request), info, warn, error or off",
            group);
  flags.Add("--log-format", options.log_format, "FORMAT", "text",
            "text for people, json (one object per line) for collectors",
            group);
}

}  // namespace

void AddOptionFlags(ServerOptions& options, FlagSet& flags) {
  AddListening(options, flags);
  AddEncryption(options, flags);
  AddComputing(options, flags);
  AddLimits(options, flags);
  AddConnectionLimits(options, flags);
  AddModels(options, flags);
  AddTrust(options, flags);
  AddLogging(options, flags);
}

}  // namespace attention::server
