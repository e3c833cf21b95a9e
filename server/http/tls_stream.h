#ifndef ATTENTION_SERVER_HTTP_TLS_STREAM_H_
#define ATTENTION_SERVER_HTTP_TLS_STREAM_H_

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>

namespace attention::server {

/// TLS over a socket; small buffers are written together.
using TlsStream = boost::beast::ssl_stream<boost::asio::ip::tcp::socket>;

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_TLS_STREAM_H_
