#ifndef ATTENTION_SERVER_HTTP_PORT_HTTP_EXCHANGE_H_
#define ATTENTION_SERVER_HTTP_PORT_HTTP_EXCHANGE_H_

#include <functional>
#include <mutex>
#include <utility>

#include "server/http/port/http_message.h"

namespace attention::server {

/// One request and its reply, which may come later and from any thread.
class HttpExchange {
 public:
  /// `deliver` is called once, from the thread that replies.
  HttpExchange(HttpRequest request, std::function<void(HttpReply)> deliver)
      : request_(std::move(request)), deliver_(std::move(deliver)) {}

  /// Of whoever answers it, who may take its body.
  HttpRequest& request() { return request_; }

  /// The first one counts. Throws nothing: where there is no memory to deliver
  /// it, nobody replies, and it IsLost().
  void Reply(HttpReply reply);
  bool IsLost();

  /// `gone` is called once where the caller goes away before the reply; at once
  /// where it has gone. From any thread; not after Reply() has returned, unless
  /// it had begun.
  void OnGone(std::function<void()> gone);

  /// The caller has gone away. The connection says so.
  void SayGone();

 private:
  HttpRequest request_;
  std::mutex mutex_;
  std::function<void(HttpReply)> deliver_;  // none: replied
  std::function<void()> on_gone_;
  bool gone_ = false;
  bool lost_ = false;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_HTTP_EXCHANGE_H_
