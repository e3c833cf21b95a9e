#include "server/http/http_session.h"

#include <boost/beast/core/bind_handler.hpp>
#include <boost/beast/http/read.hpp>
#include <string>
#include <utility>

#include "server/version.h"

namespace attention::server {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

// Beyond a request, of what a caller sends ahead of its reply.
constexpr size_t kReadAhead = 4 << 10;

HttpRequest RequestOf(const http::request<http::string_body>& message) {
  HttpRequest request;
  request.method = message.method() == http::verb::head
                       ? "GET"
                       : static_cast<std::string>(message.method_string());
  const std::string target(message.target());
  request.path = target.substr(0, target.find('?'));
  return request;
}

// The status for what was read up to there; nothing where nobody waits for one.
std::optional<int> StatusOf(beast::error_code error) {
  if (error == http::error::header_limit) return 431;
  if (error == http::error::body_limit) return 413;
  if (error == http::error::end_of_stream ||
      error == http::error::partial_message ||
      error.category() != make_error_code(http::error::bad_method).category()) {
    return std::nullopt;
  }
  return 400;
}

}  // namespace

HttpSession::HttpSession(boost::asio::ip::tcp::socket socket,
                         std::unique_ptr<HttpConnections::Place> place,
                         const HttpLimits& limits,
                         const HttpServer::Handler& handler)
    : place_(std::move(place)),
      limits_(limits),
      handler_(handler),
      stream_(std::move(socket)),
      buffer_(limits.header_bytes + kReadAhead) {}

void HttpSession::Read() {
  parser_.emplace();
  parser_->header_limit(limits_.header_bytes);
  parser_->body_limit(limits_.body_bytes);
  stream_.expires_after(limits_.request_time);
  http::async_read(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](beast::error_code error, size_t) {
        self->OnRead(error);
      });
}

void HttpSession::OnRead(beast::error_code error) {
  if (error) return Refuse(error);
  const auto& message = parser_->get();
  Write(handler_(RequestOf(message)), message.keep_alive());
}

void HttpSession::Refuse(beast::error_code error) {
  const std::optional<int> status = StatusOf(error);
  if (!status) return Close();
  Write(
      {.status = *status, .body = "{\"error\":\"" + error.message() + "\"}\n"},
      /*keep_alive=*/false);
}

void HttpSession::Write(HttpReply reply, bool keep_alive) {
  response_ = {static_cast<http::status>(reply.status), 11};
  response_.set(http::field::server,
                std::string("attention-server/") + Version());
  response_.set(http::field::content_type, reply.content_type);
  response_.set(http::field::cache_control, "no-store");
  if (reply.status == 405) response_.set(http::field::allow, "GET, HEAD");
  response_.keep_alive(keep_alive);
  response_.body() = std::move(reply.body);
  response_.prepare_payload();
  serializer_.emplace(response_);
  const auto written = [self = shared_from_this()](beast::error_code error,
                                                   size_t) {
    self->OnWritten(error);
  };
  stream_.expires_after(limits_.reply_time);
  if (parser_->get().method() == http::verb::head) {
    http::async_write_header(stream_, *serializer_, written);
  } else {
    http::async_write(stream_, *serializer_, written);
  }
}

void HttpSession::OnWritten(beast::error_code error) {
  const bool keep_alive = response_.keep_alive();
  // While the next request is waited for, the reply's memory is not kept.
  serializer_.reset();
  response_ = {};
  if (error || !keep_alive) return Close();
  Read();
}

void HttpSession::Close() {
  beast::error_code ignored;
  stream_.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_both,
                            ignored);
}

}  // namespace attention::server
