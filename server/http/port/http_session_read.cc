// HttpSession: how a request is read.

#include <algorithm>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/http/port/http_access.h"
#include "server/http/port/http_head_checks.h"
#include "server/http/port/http_session.h"
#include "server/http/port/http_status.h"
#include "server/scheduling/retry_after.h"
#include "server/telemetry/trace_context.h"

namespace attention::server {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

// Read at once, of a body; as much of it is progress.
constexpr size_t kBodyChunk = 64 << 10;

constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";

// Of a target that is a whole URL, as proxies are sent it, the host and the
// rest; no host of any other.
std::pair<std::optional<std::string>, std::string> CutTarget(
    absl::string_view target) {
  for (const absl::string_view scheme : {"http://", "https://"}) {
    if (!absl::StartsWithIgnoreCase(target, scheme)) continue;
    target.remove_prefix(scheme.size());
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    return {static_cast<std::string>(target.substr(0, end)),
            absl::StrCat(absl::StartsWith(target.substr(end), "/") ? "" : "/",
                         target.substr(end))};
  }
  return {std::nullopt, static_cast<std::string>(target)};
}

template <typename Message>
HttpRequest RequestOf(const Message& message, const HttpPeer& peer) {
  HttpRequest request;
  request.method = message.method() == http::verb::head
                       ? "GET"
                       : static_cast<std::string>(message.method_string());
  auto [host, target] =
      CutTarget({message.target().data(), message.target().size()});
  request.path = target.substr(0, target.find('?'));
  // In place of the header, which comes after it (RFC 9112, 3.2.2).
  if (host) request.headers.emplace("host", *std::move(host));
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

absl::Status BodyTooLarge(uint64_t most) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "the body is too large (at most ", most,
      " bytes for this path, by the server's max_request_bytes and "
      "memory_limit)"));
}

// Whether there were empty lines before a request (RFC 9112, 2.2): some callers
// send one behind a body.
bool SkipEmptyLines(beast::flat_buffer& buffer) {
  const absl::string_view text(static_cast<const char*>(buffer.data().data()),
                               buffer.size());
  size_t lines = 0;
  while (absl::StartsWith(text.substr(lines), "\r\n")) lines += 2;
  buffer.consume(lines);
  return lines > 0;
}

// Of a place that is left for probes.
absl::Status NoPlace() {
  return RetryAfter(
      absl::UnavailableError("too many requests over HTTP are under way, of "
                             "this address or of all (health and metrics are "
                             "served)"),
      std::chrono::seconds(1));
}

}  // namespace

void HttpSession::Read() {
  parser_.emplace();
  parser_->header_limit(limits_.header_bytes);
  // Counted here. Boost 1.74 takes boost::none for a limit of 0.
  parser_->body_limit(std::numeric_limits<uint64_t>::max());
  SetIdle();
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](Error error, size_t) {
                            self->OnHead(error);
                          });
}

void HttpSession::OnHead(Error error) {
  // A reserved place is always to be had for the next one.
  if (!place_->reserved()) place_->SetBusy();
  if (error == http::error::bad_method && SkipEmptyLines(buffer_)) {
    return Read();
  }
  if (error) return Refuse(error);
  if (const auto checked = CheckHead(parser_->get()); !checked.ok()) {
    return RefuseBody(ErrorReply(checked));
  }
  request_ = RequestOf(parser_->get(), peer_);
  trace_parent_ = ReadTraceParent(request_.Header(kTraceParent));
  const bool has_body = !parser_->is_done();
  if (std::optional<HttpReply> reply = AnswerHead(has_body)) {
    if (has_body) return RefuseBody(*std::move(reply));
    request_ = {};
    return Write(*std::move(reply), parser_->get().keep_alive());
  }
  if (!has_body) return Dispatch();
  ReadBodyFrom(handlers_.most_body_bytes(request_));
}

std::optional<HttpReply> HttpSession::AnswerHead(bool has_body) {
  const bool probe = handlers_.is_probe(request_);
  if (handlers_.access != nullptr) {
    allowed_origin_ = handlers_.access->AllowedOrigin(request_);
    auto reply = handlers_.access->Answer(request_, probe, has_body);
    if (reply) return reply;
  }
  if (!place_->reserved() || probe) return std::nullopt;
  const absl::Status full = NoPlace();
  handlers_.on_refusal(request_, full, Refusal::kNone);
  return ErrorReply(full);
}

void HttpSession::ReadBodyFrom(absl::StatusOr<int64_t> most) {
  if (!most.ok()) return RefuseBody(ErrorReply(most.status()));
  most_body_bytes_ = static_cast<size_t>(*most);
  const boost::optional<uint64_t> declared = parser_->content_length();
  if (declared && *declared > most_body_bytes_) {
    return RefuseRequest(BodyTooLarge(most_body_bytes_));
  }
  request_.body = CountedBytes(limits_.bodies, peer_.address);
  buffer_.reserve(limits_.header_bytes + kBodyChunk);
  body_begin_ = body_progress_ = Clock::now();
  body_bytes_at_progress_ = 0;
  CloseAt(body_begin_ + limits_.body_pause);
  if (absl::EqualsIgnoreCase(request_.Header("expect"), "100-continue")) {
    return Continue();
  }
  ReadBody();
}

void HttpSession::Continue() {
  boost::asio::async_write(
      stream_, boost::asio::buffer(kContinue, sizeof(kContinue) - 1),
      [self = shared_from_this()](Error error, size_t) {
        if (error) return self->Close();
        self->ReadBody();
      });
}

void HttpSession::ReadBody() {
  CountedBytes& body = request_.body;
  const boost::optional<uint64_t> declared = parser_->content_length();
  const size_t most = declared ? *declared : most_body_bytes_ + 1;
  if (body.room() == 0) {
    // One more than is allowed shows that a body in chunks has more.
    Refusal refusal = Refusal::kNone;
    absl::Status memory =
        body.Grow(std::min(kBodyChunk, std::max<size_t>(most - body.size(), 1)),
                  most, &refusal);
    if (!memory.ok()) return RefuseRequest(memory, refusal);
  }
  const size_t asked = std::min(body.room(), kBodyChunk);
  auto& into = parser_->get().body();
  into.data = body.end();
  into.size = asked;
  into.more = true;
  http::async_read_some(
      stream_, buffer_, *parser_,
      [self = shared_from_this(), asked](Error error, size_t) {
        self->OnBody(error, asked);
      });
}

void HttpSession::OnBody(Error error, size_t asked) {
  if (error && error != http::error::need_buffer) return Refuse(error);
  CountedBytes& body = request_.body;
  body.Commit(asked - parser_->get().body().size);
  if (body.size() > most_body_bytes_) {
    return RefuseRequest(BodyTooLarge(most_body_bytes_));
  }
  if (parser_->is_done()) {
    SkipEmptyLines(buffer_);  // they are no request that was sent ahead
    return Dispatch();
  }
  // Who sends a large body may take longer, as long as it comes.
  if (body.size() >= body_bytes_at_progress_ + kBodyChunk) {
    body_bytes_at_progress_ = body.size();
    body_progress_ = Clock::now();
  }
  const std::chrono::milliseconds more{1000 * body.size() / limits_.body_rate};
  CloseAt(std::min(body_progress_ + limits_.body_pause,
                   body_begin_ + limits_.request_time + more));
  ReadBody();
}

void HttpSession::Refuse(Error error) {
  const std::optional<int> status = StatusOf(error);
  if (!status) return Close();
  RefuseBody(HttpError(*status, error.message()));
}

void HttpSession::RefuseRequest(const absl::Status& status, Refusal refusal) {
  handlers_.on_refusal(request_, status, refusal);
  RefuseBody(ErrorReply(status));
}

void HttpSession::RefuseBody(HttpReply reply) {
  linger_ = true;
  request_ = {};
  Write(std::move(reply), /*keep_alive=*/false);
}

}  // namespace attention::server
