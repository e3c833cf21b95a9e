#ifndef ATTENTION_SERVER_HTTP_HTTP_SESSION_H_
#define ATTENTION_SERVER_HTTP_HTTP_SESSION_H_

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <memory>
#include <optional>

#include "server/http/http_connections.h"
#include "server/http/http_message.h"
#include "server/http/http_server.h"

namespace attention::server {

/// One connection: a request, its reply, and again. It lives as long as an
/// operation on its socket is under way. On the thread of its socket's
/// executor.
class HttpSession final : public std::enable_shared_from_this<HttpSession> {
 public:
  /// `limits` and `handler` outlive it.
  HttpSession(boost::asio::ip::tcp::socket socket,
              std::unique_ptr<HttpConnections::Place> place,
              const HttpLimits& limits, const HttpServer::Handler& handler);

  void Read();

 private:
  using Body = boost::beast::http::string_body;

  void OnRead(boost::beast::error_code error);
  // Answers what could not be read, and closes, where there is an answer.
  void Refuse(boost::beast::error_code error);
  void Write(HttpReply reply, bool keep_alive);
  void OnWritten(boost::beast::error_code error);
  void Close();

  const std::unique_ptr<HttpConnections::Place> place_;
  const HttpLimits& limits_;
  const HttpServer::Handler& handler_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<Body>> parser_;
  boost::beast::http::response<Body> response_;
  // Of response_, without its body where the method is HEAD.
  std::optional<boost::beast::http::response_serializer<Body>> serializer_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_HTTP_SESSION_H_
