#include "server/http/http_port.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/transport/tcp_listener.h"

namespace attention::server {
namespace {

// Of the connections, for probes.
constexpr int64_t kReservedShare = 8;
constexpr int64_t kMostReserved = 64;

// The names that callers may use in plain text, beside localhost: this
// machine's own, that of the flag, and those that were chosen.
std::vector<std::string> KnownHosts(const ServerOptions& options) {
  std::vector<std::string> hosts = options.http_host;
  hosts.push_back(options.http_address);
  std::array<char, HOST_NAME_MAX + 1> own{};
  if (::gethostname(own.data(), own.size()) == 0) {
    own.back() = '\0';
    hosts.emplace_back(own.data());
  }
  return hosts;
}

}  // namespace

int64_t BodyMemory(const ServerOptions& options) {
  return options.http && options.http_inference ? options.memory_limit / 8 : 0;
}

void HttpPort::Stop() {
  server->Stop();
  api.StopServing();
}

absl::StatusOr<std::unique_ptr<HttpPort>> OpenHttpPort(
    const ServerOptions& options, int64_t most_connections, const Tls* tls,
    const std::shared_ptr<Ledger>& ledger) {
  if (!options.http) return nullptr;
  absl::StatusOr<TcpListener> listener =
      ListenOnTcp(options.http_address, options.http_port, "--http");
  if (!listener.ok()) return listener.status();
  auto http = std::make_unique<HttpPort>(options.http_inference);
  http->address = HostAndPort(options.http_address, listener->port);
  http->loopback = listener->loopback;
  http->bodies = std::make_shared<const ByteBudget>(
      ByteBudget{ledger, BodyMemory(options)});
  HttpLimits limits;
  limits.ledger = ledger;
  limits.reserved_connections =
      std::min(kMostReserved, most_connections / kReservedShare);
  const int64_t others = most_connections - limits.reserved_connections;
  limits.connections = {others, std::max<int64_t>(others / 2, 1)};
  limits.reply_time = options.reply_timeout;
  // Without inference there are probes alone, each with 16 KiB at most.
  if (options.http_inference) limits.bodies = http->bodies;
  HttpHandlers handlers;
  handlers.access = std::make_shared<HttpAccess>(options.http_allow_origin,
                                                 KnownHosts(options));
  handlers.is_probe = &HttpApi::IsProbe;
  handlers.most_body_bytes = [api = &http->api](HttpRequest& request) {
    return api->MostBodyBytes(request);
  };
  handlers.on_refusal = [api = &http->api](const HttpRequest& request,
                                           const absl::Status& status,
                                           Refusal refusal) {
    api->OnRefusal(request, status, refusal);
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
