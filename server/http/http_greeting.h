#ifndef ATTENTION_SERVER_HTTP_HTTP_GREETING_H_
#define ATTENTION_SERVER_HTTP_HTTP_GREETING_H_

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <memory>
#include <optional>
#include <string>

#include "server/http/http_connections.h"
#include "server/http/http_server.h"
#include "server/http/http_session.h"
#include "server/http/tls_stream.h"
#include "server/telemetry/log_limit.h"
#include "server/transport/tls_context.h"

namespace attention::server {

/// A connection's beginning on a port that takes TLS and plain text: its first
/// bytes say which, then comes the handshake, and then an HttpSession. All of
/// that must be over within the limits' handshake time. It lives as long as an
/// operation on its socket is under way.
class HttpGreeting final : public std::enable_shared_from_this<HttpGreeting> {
 public:
  /// `limits`, `handlers` and `failed` outlive it; the last counts handshakes.
  HttpGreeting(boost::asio::ip::tcp::socket socket,
               std::unique_ptr<HttpConnections::Place> place, HttpPeer peer,
               TlsContext tls, const HttpLimits& limits,
               const HttpHandlers& handlers, LogLimit& failed);

  void Begin();

 private:
  using Error = boost::beast::error_code;

  void OnDetected(Error error, bool tls);
  void OnHandshake(Error error);
  void CloseAfterTime();

  std::unique_ptr<HttpConnections::Place> place_;
  HttpPeer peer_;
  const TlsContext tls_;
  const HttpLimits& limits_;
  const HttpHandlers& handlers_;
  LogLimit& failed_;
  std::optional<boost::asio::ip::tcp::socket> socket_;  // before the handshake
  std::optional<TlsStream> stream_;                     // from then on
  boost::asio::steady_timer timer_;
  boost::beast::flat_buffer buffer_;  // what was read of the first bytes
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_HTTP_GREETING_H_
