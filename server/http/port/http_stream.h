#ifndef ATTENTION_SERVER_HTTP_PORT_HTTP_STREAM_H_
#define ATTENTION_SERVER_HTTP_PORT_HTTP_STREAM_H_

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <utility>
#include <variant>

namespace attention::server {

/// TLS over a socket; small buffers are written together.
using TlsStream = boost::beast::ssl_stream<boost::asio::ip::tcp::socket>;

/// A connection's bytes, in plain text or over TLS: an AsyncStream, as Asio and
/// Beast have it, with handlers for completion tokens.
class HttpStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using executor_type = Socket::executor_type;  // NOLINT: Asio's name

  explicit HttpStream(Socket socket) : stream_(std::move(socket)) {}
  explicit HttpStream(TlsStream stream) : stream_(std::move(stream)) {}

  /// Null in plain text.
  TlsStream* tls() { return std::get_if<TlsStream>(&stream_); }
  Socket& socket() {
    return tls() != nullptr ? tls()->next_layer() : std::get<Socket>(stream_);
  }
  executor_type get_executor() { return socket().get_executor(); }

  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    std::visit(
        [&](auto& stream) {
          stream.async_read_some(buffers, std::forward<Handler>(handler));
        },
        stream_);
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    std::visit(
        [&](auto& stream) {
          stream.async_write_some(buffers, std::forward<Handler>(handler));
        },
        stream_);
  }

 private:
  std::variant<Socket, TlsStream> stream_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_HTTP_STREAM_H_
