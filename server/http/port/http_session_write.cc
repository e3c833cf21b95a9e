// HttpSession: how a reply is written, and how a connection ends.

#include <boost/asio/write.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/base/version.h"
#include "server/http/port/http_access.h"
#include "server/http/port/http_session.h"
#include "server/telemetry/trace_context.h"

namespace attention::server {
namespace {

namespace http = boost::beast::http;

// What is taken from a caller that was refused while it sends, and how long.
constexpr size_t kDiscardChunk = 64 << 10;
constexpr size_t kMostDiscarded = 64 << 20;
constexpr std::chrono::seconds kDiscardTime{2};

std::vector<boost::asio::const_buffer> BodyOf(const HttpReply& reply) {
  if (reply.pieces.empty()) return {boost::asio::buffer(reply.body)};
  std::vector<boost::asio::const_buffer> body;
  body.reserve(reply.pieces.size());
  for (const grpc::Slice& piece : reply.pieces) {
    body.emplace_back(piece.begin(), piece.size());
  }
  return body;
}

// "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, 5.6.7); made once a second.
const std::string& DateNow() {
  thread_local int64_t second = std::numeric_limits<int64_t>::min();
  thread_local std::string date;
  const absl::Time now = absl::Now();
  if (absl::ToUnixSeconds(now) != second) {
    second = absl::ToUnixSeconds(now);
    date =
        absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", now, absl::UTCTimeZone());
  }
  return date;
}

// How much to write at a time: Asio's own condition stops at 64 KiB.
size_t WriteAll(const boost::system::error_code& error, size_t /*written*/) {
  return error ? 0 : std::numeric_limits<size_t>::max();
}

}  // namespace

void HttpSession::Write(HttpReply reply, bool keep_alive) {
  if (!allowed_origin_.empty()) {
    HttpAccess::AddHeaders(allowed_origin_, reply);
    allowed_origin_.clear();
  }
  if (!trace_parent_.empty()) {
    reply.headers.emplace_back(kTraceParent, std::exchange(trace_parent_, {}));
  }
  reply_ = std::move(reply);
  keep_alive_ = keep_alive && place_->MayStay();
  const std::vector<boost::asio::const_buffer> body = BodyOf(reply_);
  reply_head_ = ReplyHead(boost::asio::buffer_size(body));
  std::vector<boost::asio::const_buffer> all = {
      boost::asio::buffer(reply_head_)};
  if (parser_->get().method() != http::verb::head) {
    all.insert(all.end(), body.begin(), body.end());
  }
  CloseAt(Clock::now() + limits_.reply_time);
  boost::asio::async_write(stream_, all, WriteAll,
                           [self = shared_from_this()](Error error, size_t) {
                             self->OnWritten(error);
                           });
}

std::string HttpSession::ReplyHead(size_t body_bytes) const {
  http::response<http::empty_body> head(
      static_cast<http::status>(reply_.status), parser_->get().version());
  head.set(http::field::server, absl::StrCat("attention-server/", Version()));
  head.set(http::field::date, DateNow());
  head.set(http::field::cache_control, "no-store");
  for (const auto& [name, value] : reply_.headers) head.set(name, value);
  head.keep_alive(keep_alive_);
  // Without content there is no length of it either (RFC 9110, 8.6).
  if (head.result() != http::status::no_content) {
    if (!reply_.content_type.empty()) {
      head.set(http::field::content_type, reply_.content_type);
    }
    head.content_length(body_bytes);
  }
  return boost::beast::buffers_to_string(
      http::fields::writer(head, head.version(), head.result_int()).get());
}

void HttpSession::OnWritten(Error error) {
  // While the next request is waited for, the reply's memory is not kept.
  reply_ = {};
  // TLS has words for the end, without which some callers take it for an error.
  // Who has sent more than was answered may still be sending.
  const bool slowly = linger_ || stream_.encrypted() || buffer_.size() > 0;
  if (keep_alive_) {
    next_ = Next::kRead;
  } else {
    next_ = slowly ? Next::kCloseSlowly : Next::kClose;
  }
  if (error || next_ == Next::kClose) return Close();
  if (!watching_) return GoOn();
  written_ = true;
  if (next_ == Next::kRead && buffer_.size() == 0) return SetIdle();
  // The next request may be there. TLS cannot be shut down while it reads, nor
  // a buffer be read into twice.
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
  if (!stream_.encrypted()) return EndSending();
  // Over when the caller has said so as well, or sends other things.
  stream_.EndTls([self = shared_from_this()](Error) { self->EndSending(); });
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
