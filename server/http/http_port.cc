#include "server/http/http_port.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "server/transport/tcp_listener.h"

namespace attention::server {

int64_t BodyMemory(const ServerOptions& options) {
  return options.http && options.http_inference ? options.memory_limit / 8 : 0;
}

absl::StatusOr<std::unique_ptr<HttpPort>> OpenHttpPort(
    const ServerOptions& options, int64_t most_connections, const Tls* tls) {
  if (!options.http) return nullptr;
  absl::StatusOr<TcpListener> listener =
      ListenOnTcp(options.http_address, options.http_port, "--http");
  if (!listener.ok()) return listener.status();
  auto http = std::make_unique<HttpPort>();
  http->address = HostAndPort(options.http_address, listener->port);
  http->loopback = listener->loopback;
  http->bodies = std::make_shared<ByteBudget>(BodyMemory(options));
  HttpLimits limits;
  limits.connections = {most_connections,
                        std::max<int64_t>(most_connections / 2, 1)};
  limits.reply_time = options.reply_timeout;
  limits.bodies = http->bodies;
  HttpHandlers handlers;
  handlers.most_body_bytes = [api = &http->api](HttpRequest& request) {
    return api->MostBodyBytes(request);
  };
  handlers.answer =
      [api = &http->api](const std::shared_ptr<HttpExchange>& exchange) {
        api->Answer(exchange);
      };
  std::function<TlsContext()> context;
  if (tls != nullptr) context = [tls] { return tls->context(); };
  auto server = HttpServer::Start(*std::move(listener), limits, handlers,
                                  std::move(context));
  if (!server.ok()) return server.status();
  http->server = *std::move(server);
  return http;
}

std::string WhyNotInPlainText(const ServerOptions& options,
                              const HttpPort& http) {
  if (!options.tls_certificate.empty()) {
    return "this server encrypts: in plain text there are health and metrics "
           "alone (expected https://)";
  }
  if (http.loopback || options.insecure) return "";
  return "inference is not served over plain HTTP that other machines reach "
         "(the server's --http-address; it needs --insecure, or 127.0.0.1)";
}

}  // namespace attention::server
