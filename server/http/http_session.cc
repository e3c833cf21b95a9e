#include "server/http/http_session.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/http/http_status.h"
#include "server/version.h"

namespace attention::server {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

// Read at once, of what a caller sends ahead of its reply.
constexpr size_t kReadAhead = 4 << 10;
// Read at once, of a body.
constexpr size_t kBodyChunk = 64 << 10;
// What is taken from a caller that was refused while it sends, and how long.
constexpr size_t kMostDiscarded = 64 << 20;
constexpr std::chrono::seconds kDiscardTime{2};

using Socket = boost::asio::ip::tcp::socket;

Socket& SocketOf(Socket& socket) { return socket; }
Socket& SocketOf(TlsStream& stream) { return stream.next_layer(); }

constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";

template <typename Message>
HttpRequest RequestOf(const Message& message, const HttpPeer& peer) {
  HttpRequest request;
  request.method = message.method() == http::verb::head
                       ? "GET"
                       : static_cast<std::string>(message.method_string());
  const std::string target(message.target());
  request.path = target.substr(0, target.find('?'));
  for (const auto& field : message) {
    request.headers.emplace(absl::AsciiStrToLower({field.name_string().data(),
                                                   field.name_string().size()}),
                            static_cast<std::string>(field.value()));
  }
  request.peer = peer.name;
  request.address = peer.address;
  request.encrypted = peer.encrypted;
  request.certificate_names = peer.certificate_names;
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

HttpReply BodyTooLarge(uint64_t most) {
  return HttpError(413, absl::StrCat("the body is too large (at most ", most,
                                     " bytes for this path, by the "
                                     "server's max_request_bytes and "
                                     "memory_limit)"));
}

}  // namespace

template <typename Stream>
HttpSession<Stream>::HttpSession(Stream stream,
                                 std::unique_ptr<HttpConnections::Place> place,
                                 HttpPeer peer, const HttpLimits& limits,
                                 const HttpHandlers& handlers,
                                 const beast::flat_buffer& ahead)
    : place_(std::move(place)),
      peer_(std::move(peer)),
      limits_(limits),
      handlers_(handlers),
      stream_(std::move(stream)),
      timer_(stream_.get_executor()),
      buffer_(limits.header_bytes + kBodyChunk) {
  buffer_.commit(
      boost::asio::buffer_copy(buffer_.prepare(ahead.size()), ahead.data()));
}

template <typename Stream>
void HttpSession<Stream>::Read() {
  parser_.emplace();
  parser_->header_limit(limits_.header_bytes);
  // Counted here. Boost 1.74 takes boost::none for a limit of 0.
  parser_->body_limit(std::numeric_limits<uint64_t>::max());
  begin_ = Clock::now();
  CloseAt(begin_ + limits_.request_time);
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = this->shared_from_this()](
                              Error error, size_t) { self->OnHeader(error); });
}

template <typename Stream>
void HttpSession<Stream>::OnHeader(Error error) {
  if (error) return Refuse(error);
  request_ = RequestOf(parser_->get(), peer_);
  if (parser_->is_done()) return Dispatch();
  absl::StatusOr<int64_t> most = handlers_.most_body_bytes(request_);
  if (!most.ok()) return RefuseBody(ErrorReply(most.status()));
  most_body_bytes_ = static_cast<size_t>(*most);
  const boost::optional<uint64_t> declared = parser_->content_length();
  if (declared && *declared > most_body_bytes_) {
    return RefuseBody(BodyTooLarge(most_body_bytes_));
  }
  request_.body = CountedBytes(limits_.bodies, peer_.address);
  buffer_.reserve(limits_.header_bytes + kBodyChunk);
  if (absl::EqualsIgnoreCase(request_.Header("expect"), "100-continue")) {
    return Continue();
  }
  ReadBody();
}

template <typename Stream>
void HttpSession<Stream>::Continue() {
  boost::asio::async_write(
      stream_, boost::asio::buffer(kContinue, sizeof(kContinue) - 1),
      [self = this->shared_from_this()](Error error, size_t) {
        if (error) return self->Close();
        self->ReadBody();
      });
}

template <typename Stream>
void HttpSession<Stream>::ReadBody() {
  CountedBytes& body = request_.body;
  const boost::optional<uint64_t> declared = parser_->content_length();
  const size_t most = declared ? *declared : most_body_bytes_ + 1;
  if (body.room() == 0) {
    // One more than is allowed shows that a body in chunks has more.
    absl::Status memory = body.Grow(
        std::min(kBodyChunk, std::max<size_t>(most - body.size(), 1)), most);
    if (!memory.ok()) return RefuseBody(ErrorReply(memory));
  }
  const size_t asked = std::min(body.room(), kBodyChunk);
  auto& into = parser_->get().body();
  into.data = body.end();
  into.size = asked;
  into.more = true;
  http::async_read_some(
      stream_, buffer_, *parser_,
      [self = this->shared_from_this(), asked](Error error, size_t) {
        self->OnBody(error, asked);
      });
}

template <typename Stream>
void HttpSession<Stream>::OnBody(Error error, size_t asked) {
  if (error && error != http::error::need_buffer) return Refuse(error);
  CountedBytes& body = request_.body;
  body.Commit(asked - parser_->get().body().size);
  if (body.size() > most_body_bytes_) {
    return RefuseBody(BodyTooLarge(most_body_bytes_));
  }
  if (parser_->is_done()) return Dispatch();
  // Who sends a large body may take longer, as long as it comes.
  const std::chrono::milliseconds more{1000 * body.size() / limits_.body_rate};
  CloseAt(begin_ + limits_.request_time + more);
  ReadBody();
}

template <typename Stream>
void HttpSession<Stream>::Dispatch() {
  CloseNever();
  const bool keep_alive = parser_->get().keep_alive();
  auto exchange = std::make_shared<HttpExchange>(
      std::move(request_),
      [self = this->shared_from_this(), keep_alive](HttpReply reply) mutable {
        boost::asio::post(
            self->stream_.get_executor(),
            [self, reply = std::move(reply), keep_alive]() mutable {
              self->exchange_ = nullptr;
              self->Write(std::move(reply), keep_alive);
            });
      });
  request_ = {};
  exchange_ = exchange;
  handlers_.answer(exchange);
  Watch();
}

template <typename Stream>
void HttpSession<Stream>::Watch() {
  // What was sent ahead is read after the reply; nothing more until then.
  if (watching_ || buffer_.size() > 0) return;
  watching_ = true;
  stream_.async_read_some(
      buffer_.prepare(kReadAhead),
      [self = this->shared_from_this()](Error error, size_t bytes) {
        self->OnWatched(error, bytes);
      });
}

template <typename Stream>
void HttpSession<Stream>::OnWatched(Error error, size_t bytes) {
  watching_ = false;
  buffer_.commit(bytes);
  if (error) {
    if (exchange_ != nullptr) exchange_->SayGone();
    // With the reply, where there is one to write.
    if (read_after_watch_) Close();
    return;
  }
  if (read_after_watch_) ReadNext();
}

template <typename Stream>
void HttpSession<Stream>::Refuse(Error error) {
  const std::optional<int> status = StatusOf(error);
  if (!status) return Close();
  RefuseBody(HttpError(*status, error.message()));
}

template <typename Stream>
void HttpSession<Stream>::RefuseBody(HttpReply reply) {
  linger_ = Linger::kYes;
  request_ = {};
  Write(std::move(reply), /*keep_alive=*/false);
}

template <typename Stream>
void HttpSession<Stream>::Write(HttpReply reply, bool keep_alive) {
  response_ = {static_cast<http::status>(reply.status), 11};
  response_.set(http::field::server,
                std::string("attention-server/") + Version());
  response_.set(http::field::content_type, reply.content_type);
  response_.set(http::field::cache_control, "no-store");
  for (const auto& [name, value] : reply.headers) response_.set(name, value);
  response_.keep_alive(keep_alive);
  response_.body().text = std::move(reply.body);
  response_.body().pieces = std::move(reply.pieces);
  response_.prepare_payload();
  held_ = std::move(reply.held);
  serializer_.emplace(response_);
  const auto written = [self = this->shared_from_this()](Error error, size_t) {
    self->OnWritten(error);
  };
  CloseAt(Clock::now() + limits_.reply_time);
  if (parser_->get().method() == http::verb::head) {
    http::async_write_header(stream_, *serializer_, written);
  } else {
    http::async_write(stream_, *serializer_, written);
  }
}

template <typename Stream>
void HttpSession<Stream>::OnWritten(Error error) {
  const bool keep_alive = response_.keep_alive();
  // While the next request is waited for, the reply's memory is not kept.
  serializer_.reset();
  response_ = {};
  held_ = nullptr;
  // TLS has words for the end, without which some callers take it for an error.
  const bool says_end = !keep_alive && std::is_same_v<Stream, TlsStream>;
  if (!error && (linger_ == Linger::kYes || says_end)) return CloseSlowly();
  if (error || !keep_alive) return Close();
  if (watching_) {
    read_after_watch_ = true;
    CloseAt(Clock::now() + limits_.request_time);
    return;
  }
  ReadNext();
}

template <typename Stream>
void HttpSession<Stream>::ReadNext() {
  read_after_watch_ = false;
  buffer_.shrink_to_fit();
  Read();
}

template <typename Stream>
void HttpSession<Stream>::CloseSlowly() {
  CloseAt(Clock::now() + kDiscardTime);
  if constexpr (std::is_same_v<Stream, TlsStream>) {
    // Over when the caller has said so as well, or sends other things.
    stream_.async_shutdown(
        [self = this->shared_from_this()](Error) { self->EndSending(); });
  } else {
    EndSending();
  }
}

template <typename Stream>
void HttpSession<Stream>::EndSending() {
  Error ignored;
  SocketOf(stream_).shutdown(Socket::shutdown_send, ignored);
  Discard();
}

template <typename Stream>
void HttpSession<Stream>::Discard() {
  buffer_.clear();
  SocketOf(stream_).async_read_some(
      buffer_.prepare(kBodyChunk),
      [self = this->shared_from_this()](Error error, size_t bytes) {
        self->discarded_ += bytes;
        if (error || self->discarded_ > kMostDiscarded) return self->Close();
        self->Discard();
      });
}

template <typename Stream>
void HttpSession<Stream>::Close() {
  CloseNever();
  Error ignored;
  SocketOf(stream_).shutdown(Socket::shutdown_both, ignored);
  SocketOf(stream_).close(ignored);
}

template <typename Stream>
void HttpSession<Stream>::CloseAt(Clock::time_point time) {
  timer_.expires_at(time);
  // Where the session has ended by then, there is nothing to close.
  timer_.async_wait([session = this->weak_from_this()](const Error& error) {
    const auto self = session.lock();
    // It may have been set again while this was on its way.
    if (error || self == nullptr || self->timer_.expiry() > Clock::now()) {
      return;
    }
    self->Close();
  });
}

template class HttpSession<Socket>;
template class HttpSession<TlsStream>;

}  // namespace attention::server
