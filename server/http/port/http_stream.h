#ifndef ATTENTION_SERVER_HTTP_PORT_HTTP_STREAM_H_
#define ATTENTION_SERVER_HTTP_PORT_HTTP_STREAM_H_

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <cstddef>
#include <utility>
#include <variant>

namespace attention::server {

/// TLS over a socket; small buffers are written together.
using TlsStream = boost::beast::ssl_stream<boost::asio::ip::tcp::socket>;

/// The first buffers with bytes of what is to be written, a ConstBufferSequence
/// of Asio's: one type for all that Beast writes, so that what lies below it,
/// TLS above all, is compiled once. Whoever writes some bytes writes the rest
/// later.
class FirstBuffers {
 public:
  template <typename Buffers>
  explicit FirstBuffers(const Buffers& buffers) {
    const auto last = boost::asio::buffer_sequence_end(buffers);
    for (auto at = boost::asio::buffer_sequence_begin(buffers);
         at != last && count_ < buffers_.size(); ++at) {
      const boost::asio::const_buffer buffer = *at;
      if (buffer.size() > 0) buffers_[count_++] = buffer;
    }
  }

  const boost::asio::const_buffer* begin() const { return buffers_.data(); }
  const boost::asio::const_buffer* end() const { return begin() + count_; }

 private:
  std::array<boost::asio::const_buffer, 16> buffers_;
  size_t count_ = 0;
};

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
          stream.async_write_some(FirstBuffers(buffers),
                                  std::forward<Handler>(handler));
        },
        stream_);
  }

 private:
  std::variant<Socket, TlsStream> stream_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_HTTP_STREAM_H_
