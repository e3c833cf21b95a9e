#ifndef ATTENTION_SERVER_HTTP_HTTP_SERVER_H_
#define ATTENTION_SERVER_HTTP_HTTP_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "server/http/counted_bytes.h"
#include "server/http/http_exchange.h"
#include "server/http/http_message.h"
#include "server/transport/connection_limits.h"
#include "server/transport/tcp_listener.h"
#include "server/transport/tls_context.h"

namespace attention::server {

/// What one HTTP caller can make the server hold, and for how long.
struct HttpLimits {
  ConnectionLimits connections = {256, 128};
  /// Where the port takes TLS: from a connection's beginning to the end of the
  /// handshake, or to the first byte of plain text. As gRPC has it.
  std::chrono::milliseconds handshake_time{20'000};
  uint32_t header_bytes = 8 << 10;
  /// From a connection's beginning, or its last reply, to the end of the next
  /// request: for callers that are idle, and for those that send a byte now
  /// and then.
  std::chrono::milliseconds request_time{60'000};
  /// What comes with it of a body prolongs that, at this many bytes per second.
  size_t body_rate = 64 << 10;
  /// What bodies are taken from while they are read; null counts nothing.
  std::shared_ptr<ByteBudget> bodies = nullptr;
  /// To take a reply.
  std::chrono::milliseconds reply_time{60'000};
};

/// What becomes of requests. Both are called on the server's thread, must not
/// take long, and must not throw.
struct HttpHandlers {
  /// How long the body of a request may be, of which the headers have come; it
  /// is refused with the status where there is to be none. Only where a body is
  /// announced. What it finds out it may note in the request.
  std::function<absl::StatusOr<int64_t>(HttpRequest&)> most_body_bytes =
      [](HttpRequest& /*request*/) { return 16 << 10; };
  /// Answers a request, now or later.
  std::function<void(const std::shared_ptr<HttpExchange>&)> answer;
};

/// HTTP/1.1, in plain text and over TLS, on one thread, whoever is slow:
/// nothing that one connection does or leaves out holds up another.
class HttpServer {
 public:
  /// Serves from the moment it returns. RESOURCE_EXHAUSTED where there is no
  /// thread or no descriptor for it. With `tls`, which is asked for each new
  /// connection, from the server's thread, a connection may be encrypted or
  /// not: the handlers see which it is. Without, all are in plain text.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      TcpListener listener, const HttpLimits& limits, HttpHandlers handlers,
      std::function<TlsContext()> tls = nullptr);

  /// Closes every connection; no reply may be on its way any more.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// No handler is called after it, and nothing is sent any more.
  void Stop();

  int64_t connections() const;
  int64_t connections_refused() const;  // since the start

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_HTTP_SERVER_H_
