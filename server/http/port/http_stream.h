#ifndef ATTENTION_SERVER_HTTP_PORT_HTTP_STREAM_H_
#define ATTENTION_SERVER_HTTP_PORT_HTTP_STREAM_H_

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <utility>
#include <variant>

#include "absl/functional/any_invocable.h"

namespace attention::server {

/// TLS over a socket; small buffers are written together.
using TlsStream = boost::beast::ssl_stream<boost::asio::ip::tcp::socket>;

/// A connection's bytes, in plain text or over TLS: an AsyncStream, as Asio and
/// Beast have it, with handlers for completion tokens. Handlers and buffers
/// have one type below it, so that sockets and TLS are compiled once and not
/// for each operation above.
class HttpStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using executor_type = Socket::executor_type;  // NOLINT: Asio's name
  using Error = boost::system::error_code;
  /// With the bytes that were read or written.
  using Handler = absl::AnyInvocable<void(Error, size_t)>;

  explicit HttpStream(Socket socket) : stream_(std::move(socket)) {}
  explicit HttpStream(TlsStream stream) : stream_(std::move(stream)) {}

  bool encrypted() const { return std::holds_alternative<TlsStream>(stream_); }
  Socket& socket();
  executor_type get_executor() { return socket().get_executor(); }

  /// Reads into the first of `buffers` alone, as all that Beast reads into is
  /// one. Operations move themselves into their handlers: `buffers` are looked
  /// at before. Once a read has met the end, all others meet it.
  template <typename Buffers, typename AnyHandler>
  void async_read_some(const Buffers& buffers, AnyHandler&& handler) {
    const boost::asio::mutable_buffer into =
        *boost::asio::buffer_sequence_begin(buffers);
    Read(into, std::forward<AnyHandler>(handler));
  }
  /// Writes the first buffers with bytes; whoever writes some bytes writes the
  /// rest later.
  template <typename Buffers, typename AnyHandler>
  void async_write_some(const Buffers& buffers, AnyHandler&& handler) {
    const FirstBuffers first(buffers);
    Write(first, std::forward<AnyHandler>(handler));
  }
  /// Says the end over TLS, where it is encrypted.
  void EndTls(absl::AnyInvocable<void(Error)> handler);

 private:
  // A ConstBufferSequence of Asio's.
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

  void Read(boost::asio::mutable_buffer into, Handler handler);
  void Write(const FirstBuffers& buffers, Handler handler);

  std::variant<Socket, TlsStream> stream_;
  // What a read met. Asio tells of it once: who reads again waits for ever.
  Error end_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_HTTP_STREAM_H_
