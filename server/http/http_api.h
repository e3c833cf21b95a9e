#ifndef ATTENTION_SERVER_HTTP_HTTP_API_H_
#define ATTENTION_SERVER_HTTP_HTTP_API_H_

#include <functional>
#include <mutex>
#include <string>

#include "server/http/http_message.h"

namespace attention::server {

/// What there is to ask over HTTP:
///
///   /v2/health/live     200 from the first moment to the last
///   /v2/health/started  200 once the server has started
///   /v2/health/ready    200 while it serves; 503 while it starts and drains,
///                       and where no backend is left that computes
///   /metrics            for Prometheus
///
/// May be used from several threads at once.
class HttpApi {
 public:
  struct Sources {
    std::function<bool()> ready;
    std::function<std::string()> metrics;  // in Prometheus' text form
  };

  /// The start is over; before it, all but live is answered with 503. The
  /// sources are asked for as long as this lives.
  void StartServing(Sources sources);

  HttpReply Answer(const HttpRequest& request) const;

 private:
  HttpReply Health(const std::string& what) const;
  HttpReply Metrics() const;

  mutable std::mutex mutex_;
  Sources sources_;  // empty before
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_HTTP_API_H_
