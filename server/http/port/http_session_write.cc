// HttpSession: how a reply is written, and how a connection ends.

#include <boost/beast/http/write.hpp>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/version.h"
#include "server/http/port/http_access.h"
#include "server/http/port/http_session.h"

namespace attention::server {
namespace {

namespace http = boost::beast::http;

// What is taken from a caller that was refused while it sends, and how long.
constexpr size_t kDiscardChunk = 64 << 10;
constexpr size_t kMostDiscarded = 64 << 20;
constexpr std::chrono::seconds kDiscardTime{2};

}  // namespace

void HttpSession::Write(HttpReply reply, bool keep_alive) {
  if (!allowed_origin_.empty()) {
    HttpAccess::AddHeaders(allowed_origin_, reply);
    allowed_origin_.clear();
  }
  response_ = {static_cast<http::status>(reply.status), 11};
  response_.set(http::field::server,
                std::string("attention-server/") + Version());
  response_.set(http::field::content_type, reply.content_type);
  response_.set(http::field::cache_control, "no-store");
  for (const auto& [name, value] : reply.headers) response_.set(name, value);
  // A reserved place is left for the next one.
  response_.keep_alive(keep_alive && !place_->reserved());
  response_.body().text = std::move(reply.body);
  response_.body().pieces = std::move(reply.pieces);
  response_.prepare_payload();
  held_ = std::move(reply.held);
  serializer_.emplace(response_);
  const auto written = [self = shared_from_this()](Error error, size_t) {
    self->OnWritten(error);
  };
  CloseAt(Clock::now() + limits_.reply_time);
  if (parser_->get().method() == http::verb::head) {
    http::async_write_header(stream_, *serializer_, written);
  } else {
    http::async_write(stream_, *serializer_, written);
  }
}

void HttpSession::OnWritten(Error error) {
  const bool keep_alive = response_.keep_alive();
  // While the next request is waited for, the reply's memory is not kept.
  serializer_.reset();
  response_ = {};
  held_ = nullptr;
  // TLS has words for the end, without which some callers take it for an error.
  const bool slowly = linger_ || stream_.tls() != nullptr;
  if (keep_alive) {
    next_ = Next::kRead;
  } else {
    next_ = slowly ? Next::kCloseSlowly : Next::kClose;
  }
  if (error || next_ == Next::kClose) return Close();
  if (!watching_) return GoOn();
  written_ = true;
  if (next_ == Next::kRead) return SetIdle();
  // TLS cannot be shut down while it reads, nor a buffer be read into twice.
  Error ignored;
  stream_.socket().cancel(ignored);
}

void HttpSession::GoOn() {
  written_ = false;
  if (next_ == Next::kCloseSlowly) return CloseSlowly();
  buffer_.shrink_to_fit();
  Read();
}

void HttpSession::CloseSlowly() {
  SetIdle();
  CloseAt(Clock::now() + kDiscardTime);
  if (stream_.tls() == nullptr) return EndSending();
  // Over when the caller has said so as well, or sends other things.
  stream_.tls()->async_shutdown(
      [self = shared_from_this()](Error) { self->EndSending(); });
}

void HttpSession::EndSending() {
  Error ignored;
  stream_.socket().shutdown(HttpStream::Socket::shutdown_send, ignored);
  Discard();
}

void HttpSession::Discard() {
  buffer_.clear();
  stream_.socket().async_read_some(
      buffer_.prepare(kDiscardChunk),
      [self = shared_from_this()](Error error, size_t bytes) {
        self->discarded_ += bytes;
        if (error || self->discarded_ > kMostDiscarded) return self->Close();
        self->Discard();
      });
}

void HttpSession::Close() {
  CloseNever();
  Error ignored;
  stream_.socket().shutdown(HttpStream::Socket::shutdown_both, ignored);
  stream_.socket().close(ignored);
}

void HttpSession::CloseAt(Clock::time_point time) {
  timer_.expires_at(time);
  // Where the session has ended by then, there is nothing to close.
  timer_.async_wait([session = weak_from_this()](const Error& error) {
    const auto self = session.lock();
    // It may have been set again while this was on its way.
    if (error || self == nullptr || self->timer_.expiry() > Clock::now()) {
      return;
    }
    self->Close();
  });
}

}  // namespace attention::server
