#ifndef ATTENTION_SERVER_HTTP_HTTP_SESSION_H_
#define ATTENTION_SERVER_HTTP_HTTP_SESSION_H_

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/http/http_connections.h"
#include "server/http/http_exchange.h"
#include "server/http/http_message.h"
#include "server/http/http_server.h"
#include "server/http/pieces_body.h"
#include "server/http/tls_stream.h"

namespace attention::server {

/// What a session knows of its caller.
struct HttpPeer {
  std::string address;  // "127.0.0.1"
  std::string name;     // as HttpRequest::peer
  bool encrypted = false;
  std::vector<std::string> certificate_names = {};
};

/// One connection: a request, its reply, and again. It lives as long as an
/// operation on its socket is under way or a reply is waited for. On the thread
/// of its socket's executor. A Stream is a socket, or TLS over one.
template <typename Stream>
class HttpSession final
    : public std::enable_shared_from_this<HttpSession<Stream>> {
 public:
  /// `limits` and `handlers` outlive it; `ahead` was read already.
  HttpSession(Stream stream, std::unique_ptr<HttpConnections::Place> place,
              HttpPeer peer, const HttpLimits& limits,
              const HttpHandlers& handlers,
              const boost::beast::flat_buffer& ahead = {});

  void Read();

 private:
  using Error = boost::beast::error_code;
  using Clock = std::chrono::steady_clock;
  enum class Linger : uint8_t { kNo, kYes };

  void OnHeader(Error error);
  void Continue();
  void ReadBody();
  void OnBody(Error error, size_t asked);
  void Dispatch();
  // Reads ahead while a reply is waited for, which is how it is known whether
  // the caller is still there.
  void Watch();
  void OnWatched(Error error, size_t bytes);
  // Answers what could not be read, and closes, where there is an answer.
  void Refuse(Error error);
  // Answers a request whose body is not wanted, and closes.
  void RefuseBody(HttpReply reply);
  void Write(HttpReply reply, bool keep_alive);
  void OnWritten(Error error);
  void ReadNext();
  // Ends what is sent, and takes what still comes for a moment: closing at once
  // would take the reply from a caller that is still sending.
  void CloseSlowly();
  void EndSending();
  void Discard();
  void Close();

  // Closes the connection at `time`, unless it is set again.
  void CloseAt(Clock::time_point time);
  void CloseNever() { timer_.expires_at(Clock::time_point::max()); }

  const std::unique_ptr<HttpConnections::Place> place_;
  const HttpPeer peer_;
  const HttpLimits& limits_;
  const HttpHandlers& handlers_;
  Stream stream_;
  boost::asio::steady_timer timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<
      boost::beast::http::request_parser<boost::beast::http::buffer_body>>
      parser_;
  HttpRequest request_;
  Clock::time_point begin_;  // of waiting for the request
  size_t most_body_bytes_ = 0;
  std::shared_ptr<HttpExchange> exchange_;  // while a reply is waited for
  boost::beast::http::response<PiecesBody> response_;
  std::shared_ptr<void> held_;  // until it is out
  // Of response_, without its body where the method is HEAD.
  std::optional<boost::beast::http::response_serializer<PiecesBody>>
      serializer_;
  Linger linger_ = Linger::kNo;
  bool watching_ = false;
  bool read_after_watch_ = false;
  size_t discarded_ = 0;
};

using PlainHttpSession = HttpSession<boost::asio::ip::tcp::socket>;
using TlsHttpSession = HttpSession<TlsStream>;

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_HTTP_SESSION_H_
