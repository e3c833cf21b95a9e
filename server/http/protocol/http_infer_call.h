#ifndef ATTENTION_SERVER_HTTP_PROTOCOL_HTTP_INFER_CALL_H_
#define ATTENTION_SERVER_HTTP_PROTOCOL_HTTP_INFER_CALL_H_

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <memory>

#include "server/http/port/http_exchange.h"
#include "server/http/protocol/json_infer_wire.h"
#include "server/scheduling/call.h"

namespace attention::server {

/// One inference over HTTP. It lives until its reply is out.
class HttpInferCall final : public Call {
 public:
  /// Starts the operation; the threads of `clock` wait for its deadline. A
  /// request may return when they have ended and whoever made them is gone: it
  /// shares them. `reply` is what the operation fills in. Where it throws
  /// std::bad_alloc, it has not begun and will not reply.
  static void Begin(const TaskServices& services, ActiveCalls& calls,
                    CallOrigin origin, std::unique_ptr<Operation> operation,
                    std::shared_ptr<HttpExchange> exchange,
                    std::shared_ptr<const JsonInferReply> reply,
                    std::shared_ptr<boost::asio::thread_pool> clock);

  HttpInferCall(const TaskServices& services, ActiveCalls& calls,
                CallOrigin origin, std::shared_ptr<HttpExchange> exchange,
                std::shared_ptr<const JsonInferReply> reply,
                std::shared_ptr<boost::asio::thread_pool> clock);

 private:
  // What the call holds of the server until its reply is out.
  class Held;

  void StopAtDeadline();
  void Emit(int64_t number, Task::Outcome outcome) override;
  HttpReply ReplyTo(Task::Outcome outcome);

  const std::shared_ptr<HttpExchange> exchange_;
  const std::shared_ptr<const JsonInferReply> reply_;
  const std::shared_ptr<boost::asio::thread_pool> clock_;  // the timer's
  boost::asio::steady_timer timer_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PROTOCOL_HTTP_INFER_CALL_H_
