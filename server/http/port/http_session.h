#ifndef ATTENTION_SERVER_HTTP_PORT_HTTP_SESSION_H_
#define ATTENTION_SERVER_HTTP_PORT_HTTP_SESSION_H_

#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/port/http_connections.h"
#include "server/http/port/http_exchange.h"
#include "server/http/port/http_message.h"
#include "server/http/port/http_server.h"
#include "server/http/port/http_stream.h"

namespace attention::server {

/// What a session knows of its caller.
struct HttpPeer {
  std::string address;  // "127.0.0.1"
  std::string name;     // as HttpRequest::peer
  bool encrypted = false;
  std::vector<std::string> certificate_names = {};
};

/// One connection: a request, its reply, and again. It lives as long as an
/// operation on its socket is under way or a reply is waited for. On the thread
/// of its socket's executor.
class HttpSession final : public std::enable_shared_from_this<HttpSession> {
 public:
  /// `limits` and `handlers` outlive it; `ahead` was read already.
  HttpSession(HttpStream stream, std::unique_ptr<HttpConnections::Place> place,
              HttpPeer peer, const HttpLimits& limits,
              const HttpHandlers& handlers,
              const boost::beast::flat_buffer& ahead = {});

  void Read();

 private:
  using Error = boost::beast::error_code;
  using Clock = std::chrono::steady_clock;
  // What comes after a reply.
  enum class Next : uint8_t { kRead, kClose, kCloseSlowly };

  // Reading, in http_session_read.cc.
  void OnHead(Error error);
  // The reply to a head after which nothing more is read of its request.
  std::optional<HttpReply> AnswerHead(bool has_body);
  void ReadBodyFrom(absl::StatusOr<int64_t> most);
  void Continue();
  void ReadBody();
  void OnBody(Error error, size_t asked);
  // Answers what could not be read, and closes, where there is an answer.
  void Refuse(Error error);
  // Answers a request for which there is no room, tells of it, and closes.
  void RefuseRequest(const absl::Status& status,
                     Refusal refusal = Refusal::kNone);
  // Answers a request whose body is not wanted, and closes.
  void RefuseBody(HttpReply reply);

  // A request that is waited for, and its reply.
  void SetIdle();
  void Dispatch();
  // Reads ahead while a reply is waited for, which is how it is known whether
  // the caller is still there.
  void Watch();
  void OnWatched(Error error, size_t bytes);

  // Writing and closing, in http_session_write.cc.
  void Write(HttpReply reply, bool keep_alive);
  // The status line and headers of reply_.
  std::string ReplyHead(size_t body_bytes) const;
  void OnWritten(Error error);
  // No read is under way any more.
  void GoOn();
  // Ends what is sent, and takes what still comes for a moment: closing at once
  // would take the reply from a caller that is still sending.
  void CloseSlowly();
  void EndSending();
  void Discard();
  void Close();

  // Closes the connection at `time`, unless it is set again.
  void CloseAt(Clock::time_point time);
  void CloseNever() { timer_.expires_at(Clock::time_point::max()); }

  const std::unique_ptr<HttpConnections::Place> place_;
  const HttpPeer peer_;
  const HttpLimits& limits_;
  const HttpHandlers& handlers_;
  HttpStream stream_;
  boost::asio::steady_timer timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<
      boost::beast::http::request_parser<boost::beast::http::buffer_body>>
      parser_;
  HttpRequest request_;
  std::string allowed_origin_;  // of request_, or of the reply to it
  std::string trace_parent_;    // likewise
  int pipelined_ = 0;  // requests since the last one that had to be waited for
  size_t most_body_bytes_ = 0;
  Clock::time_point body_begin_;
  Clock::time_point body_progress_;  // when it last got on
  size_t body_bytes_at_progress_ = 0;
  // Of request_, which keeps the session until its reply. Who answers keeps it;
  // where nobody does any more, for want of memory or at the end, it ends, and
  // the session with its caller.
  std::weak_ptr<HttpExchange> exchange_;
  std::string reply_head_;
  HttpReply reply_;          // until it is out
  bool keep_alive_ = false;  // after the reply
  bool linger_ = false;      // likewise
  bool watching_ = false;
  Next next_ = Next::kRead;  // where `written_`: when the watch is over
  bool written_ = false;
  size_t discarded_ = 0;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_HTTP_SESSION_H_
