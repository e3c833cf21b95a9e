#include "server/http/port/http_session.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

namespace attention::server {
namespace {

// Read at once, of what a caller sends ahead of its reply.
constexpr size_t kReadAhead = 4 << 10;
// Beside headers, what is read at once of a body, at most.
constexpr size_t kMostBuffered = 64 << 10;
// Requests that were there before the one before them was answered. Who sends
// more at once is to come again, behind all others.
constexpr int kMostPipelined = 100;

}  // namespace

HttpSession::HttpSession(HttpStream stream,
                         std::unique_ptr<HttpConnections::Place> place,
                         HttpPeer peer, const HttpLimits& limits,
                         const HttpHandlers& handlers,
                         const boost::beast::flat_buffer& ahead)
    : place_(std::move(place)),
      peer_(std::move(peer)),
      limits_(limits),
      handlers_(handlers),
      stream_(std::move(stream)),
      timer_(stream_.get_executor()),
      buffer_(limits.header_bytes + kMostBuffered) {
  buffer_.commit(
      boost::asio::buffer_copy(buffer_.prepare(ahead.size()), ahead.data()));
}

void HttpSession::SetIdle() {
  CloseAt(Clock::now() + limits_.request_time);
  place_->SetIdle([session = weak_from_this()] {
    if (const auto self = session.lock()) self->Close();
  });
}

void HttpSession::Dispatch() {
  CloseNever();
  pipelined_ = buffer_.size() > 0 ? pipelined_ + 1 : 0;
  linger_ = pipelined_ >= kMostPipelined;
  const bool keep_alive = parser_->get().keep_alive() && !linger_;
  auto exchange = std::make_shared<HttpExchange>(
      std::move(request_),
      [self = shared_from_this(), keep_alive](HttpReply reply) mutable {
        boost::asio::post(
            self->stream_.get_executor(),
            [self, reply = std::move(reply), keep_alive]() mutable {
              self->Write(std::move(reply), keep_alive);
            });
      });
  request_ = {};
  exchange_ = exchange;
  handlers_.answer(exchange);
  if (exchange->IsLost()) return Close();  // else it waits for a reply
  Watch();
}

void HttpSession::Watch() {
  // What was sent ahead is answered after the reply. Of who sends more than
  // there is room for, the end is not seen until then.
  const size_t room = buffer_.max_size() - buffer_.size();
  if (watching_ || room == 0) return;
  watching_ = true;
  // A connection may wait like this for long: not with the room for a body.
  if (buffer_.size() == 0) buffer_.shrink_to_fit();
  stream_.async_read_some(
      buffer_.prepare(std::min(room, kReadAhead)),
      [self = shared_from_this()](Error error, size_t bytes) {
        self->OnWatched(error, bytes);
      });
}

void HttpSession::OnWatched(Error error, size_t bytes) {
  watching_ = false;
  buffer_.commit(bytes);
  // It was ended to close the connection, or goes on with another request.
  if (written_ &&
      (!error || next_ == Next::kCloseSlowly || buffer_.size() > 0)) {
    return GoOn();
  }
  if (!error) return Watch();
  if (const auto exchange = exchange_.lock()) exchange->SayGone();
  // With the reply, where there is one to write.
  if (written_) Close();
}

}  // namespace attention::server
