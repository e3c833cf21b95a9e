#ifndef ATTENTION_SERVER_HTTP_HTTP_PORT_H_
#define ATTENTION_SERVER_HTTP_HTTP_PORT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/http/http_api.h"
#include "server/http/port/http_server.h"
#include "server/options/options.h"
#include "server/transport/tls.h"

namespace attention::server {

/// The HTTP port, from before the server starts to after its end.
struct HttpPort {
  /// `with_inference`: as HttpApi has it.
  explicit HttpPort(bool with_inference) : api(with_inference) {}

  HttpApi api;
  std::string address;    // "127.0.0.1:8002"
  bool loopback = false;  // nobody but this machine reaches it
  std::shared_ptr<const ByteBudget> bodies;
  std::unique_ptr<HttpServer> server;

  /// Nothing is asked or sent any more.
  void Stop();
};

/// Null where it is switched off. `tls` outlives it; null: plain text alone.
/// What callers hold is counted in `ledger`.
/// Errors as ListenOnTcp() and HttpServer::Start() have them.
absl::StatusOr<std::unique_ptr<HttpPort>> OpenHttpPort(
    const ServerOptions& options, int64_t most_connections, const Tls* tls,
    const std::shared_ptr<Ledger>& ledger);

/// Why inference is not served there without encryption; empty where it is.
std::string WhyNotInPlainText(const ServerOptions& options,
                              const HttpPort& http);

/// What bodies on their way may take, in bytes.
int64_t BodyMemory(const ServerOptions& options);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_HTTP_PORT_H_
