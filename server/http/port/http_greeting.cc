#include "server/http/port/http_greeting.h"

#include <openssl/ssl.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream_base.hpp>
#include <boost/beast/core/detect_ssl.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

namespace ssl = boost::asio::ssl;

}  // namespace

HttpGreeting::HttpGreeting(boost::asio::ip::tcp::socket socket,
                           std::unique_ptr<HttpConnections::Place> place,
                           HttpPeer peer, TlsContext tls, Shared& shared)
    : place_(std::move(place)),
      peer_(std::move(peer)),
      tls_(std::move(tls)),
      shared_(shared),
      socket_(std::move(socket)),
      timer_(socket_->get_executor()),
      turns_(shared.turns, peer_.address, timer_.get_executor().context()) {}

void HttpGreeting::Begin() {
  const auto close = [greeting = weak_from_this()] {
    // Where the greeting is over by then, there is nothing to close.
    if (const auto self = greeting.lock()) self->Close();
  };
  place_->SetIdle(close);
  timer_.expires_after(shared_.limits.handshake_time);
  timer_.async_wait([close](const Error& error) {
    if (!error) close();
  });
  boost::beast::async_detect_ssl(
      *socket_, buffer_, [self = shared_from_this()](Error error, bool tls) {
        self->OnDetected(error, tls);
      });
}

void HttpGreeting::OnDetected(Error error, bool tls) {
  if (error || closed_) return;
  if (!tls) {
    timer_.cancel();
    return std::make_shared<HttpSession>(
               HttpStream(*std::move(socket_)), std::move(place_),
               std::move(peer_), shared_.limits, shared_.handlers, buffer_)
        ->Read();
  }
  waits_ = shared_.ledger.Take(
      Kept::kHandshakes, {.address = peer_.address}, 0,
      [](const Ledger::Account& /*all*/, const Ledger::Account& own) {
        return own.of(Kept::kHandshakes).holds < kMostWaiting;
      });
  if (!waits_) {
    return NoteFailure("too many of its address wait for their turns");
  }
  descriptor_ = socket_->native_handle();
  stream_.emplace(*std::move(socket_), *tls_);
  socket_.reset();
  shared_.turns->Add(peer_.address,
                     [self = shared_from_this()] { self->Shake(); });
}

void HttpGreeting::Shake() {
  waits_ = {};
  // Who has gone, or was closed for others, is not worth a signature.
  if (closed_) return OnShaken(boost::asio::error::operation_aborted);
  stream_->async_handshake(
      ssl::stream_base::server, buffer_.data(),
      boost::asio::bind_executor(
          turns_, [self = shared_from_this()](Error error, size_t) {
            self->OnShaken(error);
          }));
}

void HttpGreeting::OnShaken(Error error) {
  boost::asio::post(timer_.get_executor(), [self = shared_from_this(), error] {
    self->Finish(error);
  });
}

void HttpGreeting::NoteFailure(const std::string& why) {
  if (const int64_t times = shared_.failed.Count(); times > 0) {
    spdlog::warn(absl::StrCat("http: ", times,
                              " TLS handshakes failed, the last from ",
                              peer_.address, ": ", why));
  }
}

void HttpGreeting::Finish(Error error) {
  timer_.cancel();
  if (error || closed_) {
    return NoteFailure(closed_ ? "not over in time, or others wanted its place"
                               : error.message());
  }
  peer_.encrypted = true;
  const X509* const certificate =
      ::SSL_get0_peer_certificate(stream_->native_handle());
  if (certificate != nullptr) {
    peer_.certificate_names = NamesInCertificate(*certificate);
  }
  std::make_shared<HttpSession>(HttpStream(*std::move(stream_)),
                                std::move(place_), std::move(peer_),
                                shared_.limits, shared_.handlers)
      ->Read();
}

void HttpGreeting::Close() {
  if (place_ == nullptr) return;  // a session's by now
  closed_ = true;
  if (socket_) {
    Error ignored;
    socket_->close(ignored);
    return;
  }
  // The stream is the turns', which may come to it later. This ends what it
  // waits for at once; its descriptor is open as long as the greeting lives.
  ::shutdown(descriptor_, SHUT_RDWR);
}

}  // namespace attention::server
