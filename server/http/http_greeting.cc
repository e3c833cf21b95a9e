#include "server/http/http_greeting.h"

#include <openssl/ssl.h>
#include <spdlog/spdlog.h>

#include <boost/asio/error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream_base.hpp>
#include <boost/beast/core/detect_ssl.hpp>
#include <utility>

namespace attention::server {
namespace {

namespace ssl = boost::asio::ssl;

// Asio's owner of a context; it counts as one more.
ssl::context Share(const TlsContext& context) {
  ::SSL_CTX_up_ref(context.get());
  return ssl::context(context.get());
}

}  // namespace

HttpGreeting::HttpGreeting(boost::asio::ip::tcp::socket socket,
                           std::unique_ptr<HttpConnections::Place> place,
                           HttpPeer peer, TlsContext tls,
                           const HttpLimits& limits,
                           const HttpHandlers& handlers, LogLimit& failed)
    : place_(std::move(place)),
      peer_(std::move(peer)),
      tls_(std::move(tls)),
      limits_(limits),
      handlers_(handlers),
      failed_(failed),
      socket_(std::move(socket)),
      timer_(socket_->get_executor()) {}

void HttpGreeting::Begin() {
  CloseAfterTime();
  boost::beast::async_detect_ssl(
      *socket_, buffer_, [self = shared_from_this()](Error error, bool tls) {
        self->OnDetected(error, tls);
      });
}

void HttpGreeting::OnDetected(Error error, bool tls) {
  if (error) return;
  if (!tls) {
    timer_.cancel();
    return std::make_shared<PlainHttpSession>(
               *std::move(socket_), std::move(place_), std::move(peer_),
               limits_, handlers_, buffer_)
        ->Read();
  }
  ssl::context context = Share(tls_);
  stream_.emplace(*std::move(socket_), context);
  socket_.reset();
  stream_->async_handshake(
      ssl::stream_base::server, buffer_.data(),
      [self = shared_from_this()](Error handshake_error, size_t) {
        self->OnHandshake(handshake_error);
      });
}

void HttpGreeting::OnHandshake(Error error) {
  timer_.cancel();
  if (error) {
    if (const int64_t times = failed_.Count(); times > 0) {
      const bool late = error == boost::asio::error::operation_aborted;
      spdlog::warn("http: {} TLS handshakes failed, the last from {}: {}",
                   times, peer_.address,
                   late ? "not over in time" : error.message());
    }
    return;
  }
  peer_.encrypted = true;
  const X509* const certificate =
      ::SSL_get0_peer_certificate(stream_->native_handle());
  if (certificate != nullptr) {
    peer_.certificate_names = NamesInCertificate(*certificate);
  }
  std::make_shared<TlsHttpSession>(*std::move(stream_), std::move(place_),
                                   std::move(peer_), limits_, handlers_)
      ->Read();
}

void HttpGreeting::CloseAfterTime() {
  timer_.expires_after(limits_.handshake_time);
  // Where the greeting is over by then, there is nothing to close.
  timer_.async_wait([greeting = weak_from_this()](const Error& error) {
    const auto self = greeting.lock();
    if (error || self == nullptr || self->place_ == nullptr) return;
    Error ignored;
    auto& socket = self->stream_ ? self->stream_->next_layer() : *self->socket_;
    socket.close(ignored);
  });
}

}  // namespace attention::server
