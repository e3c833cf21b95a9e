#ifndef ATTENTION_SERVER_HTTP_PORT_HTTP_GREETING_H_
#define ATTENTION_SERVER_HTTP_PORT_HTTP_GREETING_H_

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <memory>
#include <optional>
#include <string>

#include "server/http/port/handshake_turns.h"
#include "server/http/port/http_connections.h"
#include "server/http/port/http_server.h"
#include "server/http/port/http_session.h"
#include "server/http/port/http_stream.h"
#include "server/scheduling/ledger.h"
#include "server/telemetry/log_limit.h"
#include "server/transport/tls_context.h"

namespace attention::server {

/// A connection's beginning on a port that takes TLS and plain text: its first
/// bytes say which, then comes the handshake, and then an HttpSession. All of
/// that must be over within the limits' handshake time. It lives as long as an
/// operation on its socket is under way.
///
/// It is on the thread of its socket's executor, but for the handshake, which
/// is on that of the turns: there, nothing else touches the stream.
class HttpGreeting final : public std::enable_shared_from_this<HttpGreeting> {
 public:
  /// Handshakes of one address that may wait for their turn to begin. Who comes
  /// faster than they are computed would wait in vain.
  static constexpr int64_t kMostWaiting = 64;

  /// What all greetings of a server share, and what outlives them.
  struct Shared {
    const HttpLimits& limits;
    const HttpHandlers& handlers;
    Ledger& ledger;
    std::shared_ptr<HandshakeTurns> turns;
    LogLimit failed;  // handshakes
  };

  HttpGreeting(boost::asio::ip::tcp::socket socket,
               std::unique_ptr<HttpConnections::Place> place, HttpPeer peer,
               TlsContext tls, Shared& shared);

  void Begin();

 private:
  using Error = boost::beast::error_code;

  void OnDetected(Error error, bool tls);
  // On the turns' thread.
  void Shake();
  void OnShaken(Error error);

  void Finish(Error error);
  void NoteFailure(const std::string& why);
  // Once the handshake has begun, the socket stays open until its step has had
  // its turn, and with it the place (HttpConnections bounds how many do).
  void Close();

  std::unique_ptr<HttpConnections::Place> place_;
  HttpPeer peer_;
  const TlsContext tls_;
  Shared& shared_;
  std::optional<boost::asio::ip::tcp::socket> socket_;  // before the handshake
  boost::asio::steady_timer timer_;
  boost::beast::flat_buffer buffer_;  // what was read of the first bytes
  std::atomic<bool> closed_{false};
  int descriptor_ = -1;  // of the stream's socket
  Ledger::Hold waits_;   // for its turn to begin the handshake
  const HandshakeExecutor turns_;
  std::optional<TlsStream> stream_;  // the turns', from Shake() to OnShaken()
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_HTTP_GREETING_H_
