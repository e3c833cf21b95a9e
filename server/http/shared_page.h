#ifndef ATTENTION_SERVER_HTTP_SHARED_PAGE_H_
#define ATTENTION_SERVER_HTTP_SHARED_PAGE_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "server/http/port/http_exchange.h"

namespace attention::server {

/// A page that takes long to write, for all who wait for it: on a thread of its
/// own, at most 20 times a second, however often it is asked for. Each gets one
/// that was begun after it was asked for. May be used from several threads.
class SharedPage {
 public:
  using Write = std::function<std::string()>;

  /// `write` is called on the page's thread. Throws std::system_error where
  /// there is none. Who still waits at the page's end gets no reply.
  SharedPage(std::string content_type, Write write);
  /// Replies to it, later and from the page's thread.
  void Answer(std::shared_ptr<HttpExchange> exchange);

 private:
  using Exchanges = std::vector<std::shared_ptr<HttpExchange>>;

  void Run(const std::stop_token& stop);
  void AnswerAll(const Exchanges& exchanges) const;

  const std::string content_type_;
  const Write write_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  Exchanges waiting_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_SHARED_PAGE_H_
