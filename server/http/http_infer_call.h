#ifndef ATTENTION_SERVER_HTTP_HTTP_INFER_CALL_H_
#define ATTENTION_SERVER_HTTP_HTTP_INFER_CALL_H_

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <memory>

#include "server/http/http_exchange.h"
#include "server/http/json_infer_wire.h"
#include "server/scheduling/active_calls.h"
#include "server/scheduling/task.h"

namespace attention::server {

/// One inference over HTTP: what UnaryCall is for gRPC. It lives until its task
/// has replied.
class HttpInferCall final : public DrainableCall,
                            public std::enable_shared_from_this<HttpInferCall> {
 public:
  /// Starts the task of `arrival` on the calling thread; the threads of `clock`
  /// wait for its deadline. A task may return when they have ended and whoever
  /// made them is gone: it shares them. `reply` is what the task's operation
  /// fills in.
  static void Begin(const TaskServices& services, ActiveCalls& calls,
                    RequestArrival arrival,
                    std::shared_ptr<HttpExchange> exchange,
                    std::shared_ptr<const JsonInferReply> reply,
                    std::shared_ptr<boost::asio::thread_pool> clock);

  HttpInferCall(const TaskServices& services, ActiveCalls& calls,
                RequestArrival arrival, std::shared_ptr<HttpExchange> exchange,
                std::shared_ptr<const JsonInferReply> reply,
                std::shared_ptr<boost::asio::thread_pool> clock);

  void OnDrain() override {}  // admission turns new requests away
  void OnDrainEnd() override { task_->Stop(StopReason::kDraining); }

 private:
  // What the call holds of the server until its reply is out.
  class Held;

  void StopAtDeadline();
  void Reply(Task::Outcome outcome);

  ActiveCalls& calls_;
  const std::chrono::system_clock::time_point deadline_;
  const std::string trace_parent_;
  const std::shared_ptr<HttpExchange> exchange_;
  const std::shared_ptr<const JsonInferReply> reply_;
  const std::shared_ptr<Task> task_;
  const std::shared_ptr<boost::asio::thread_pool> clock_;  // the timer's
  boost::asio::steady_timer timer_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_HTTP_INFER_CALL_H_
