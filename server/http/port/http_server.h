#ifndef ATTENTION_SERVER_HTTP_PORT_HTTP_SERVER_H_
#define ATTENTION_SERVER_HTTP_PORT_HTTP_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/http/port/counted_bytes.h"
#include "server/http/port/http_access.h"
#include "server/http/port/http_exchange.h"
#include "server/http/port/http_message.h"
#include "server/telemetry/refusal.h"
#include "server/transport/connection_limits.h"
#include "server/transport/tcp_listener.h"
#include "server/transport/tls_context.h"

namespace attention::server {

/// What one HTTP caller can make the server hold, and for how long.
struct HttpLimits {
  /// Where they are used up, the connection that has been idle for longest is
  /// closed for a new one.
  ConnectionLimits connections = {256, 128};
  /// Besides those, for probes where none is idle.
  int64_t reserved_connections = 16;
  /// Where the port takes TLS: from a connection's beginning to the end of the
  /// handshake, or to the first byte of plain text. As gRPC has it.
  std::chrono::milliseconds handshake_time{20'000};
  uint32_t header_bytes = 8 << 10;
  /// From a connection's beginning, or its last reply, to the end of the next
  /// request's head, and from there to the end of its body: for callers that
  /// are idle, and for those that send a byte now and then.
  std::chrono::milliseconds request_time{60'000};
  /// What comes of a body prolongs its time, at this many bytes per second.
  size_t body_rate = 64 << 10;
  /// How long a body may take for its next 64 KiB, or its end.
  std::chrono::milliseconds body_pause{10'000};
  /// What bodies are taken from while they are read; null counts nothing.
  std::shared_ptr<const ByteBudget> bodies = nullptr;
  /// Counts connections.
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  /// To take a reply.
  std::chrono::milliseconds reply_time{60'000};
};

/// What becomes of requests. They are called on the server's thread, and must
/// not take long. Where they throw, for want of memory, the connection ends.
struct HttpHandlers {
  /// Which web pages may ask, and under which names; null: all.
  std::shared_ptr<const HttpAccess> access = nullptr;
  /// Whether a request is one for which places are reserved.
  std::function<bool(const HttpRequest&)> is_probe =
      [](const HttpRequest& /*request*/) { return false; };
  /// How long the body of a request may be, of which the headers have come; it
  /// is refused with the status where there is to be none. Only where a body is
  /// announced. What it finds out it may note in the request.
  std::function<absl::StatusOr<int64_t>(HttpRequest&)> most_body_bytes =
      [](HttpRequest& /*request*/) { return 16 << 10; };
  /// Told of a request that is refused before it is answered: for want of room,
  /// or for its length. The reason is kNone where the status says it.
  std::function<void(const HttpRequest&, const absl::Status&, Refusal)>
      on_refusal = [](const HttpRequest& /*request*/,
                      const absl::Status& /*status*/, Refusal /*refusal*/) {};
  /// Answers a request, now or later.
  std::function<void(const std::shared_ptr<HttpExchange>&)> answer;
};

/// HTTP/1.1, in plain text and over TLS, on one thread, whoever is slow, and
/// one more for handshakes: nothing that one connection does or leaves out
/// holds up another. Those that have something to do take turns.
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

  /// From now on a connection is closed with its next reply. True as soon as
  /// none has a request or a reply under way, but for those that are left for
  /// probes; false where some have at `deadline`.
  bool Drain(std::chrono::steady_clock::time_point deadline);
  /// True as soon as there is no connection, false where some are at
  /// `deadline`.
  bool WaitUntilNone(std::chrono::steady_clock::time_point deadline);

  /// No handler is called after it, and nothing is sent any more.
  void Stop();

  int64_t connections() const;
  /// Since the start: closed at once, and closed while idle for others.
  int64_t connections_refused() const;
  int64_t connections_displaced() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_HTTP_SERVER_H_
