#ifndef ATTENTION_SERVER_HTTP_HTTP_SERVER_H_
#define ATTENTION_SERVER_HTTP_HTTP_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "server/http/http_message.h"
#include "server/transport/connection_limits.h"
#include "server/transport/tcp_listener.h"

namespace attention::server {

/// What one HTTP caller can make the server hold, and for how long.
struct HttpLimits {
  ConnectionLimits connections = {256, 128};
  uint32_t header_bytes = 8 << 10;
  uint64_t body_bytes = 16 << 10;
  /// From a connection's beginning, or its last reply, to the end of the next
  /// request: for callers that are idle, and for those that send a byte now
  /// and then.
  std::chrono::milliseconds request_time{60'000};
  /// To take a reply.
  std::chrono::milliseconds reply_time{60'000};
};

/// HTTP/1.1 on one thread, whoever is slow: nothing that one connection does or
/// leaves out holds up another.
class HttpServer {
 public:
  /// Called on the server's thread, for one request at a time; must not take
  /// long, and must not throw.
  using Handler = std::function<HttpReply(const HttpRequest&)>;

  /// Serves from the moment it returns. RESOURCE_EXHAUSTED where there is no
  /// thread or no descriptor for it.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      TcpListener listener, const HttpLimits& limits, Handler handler);

  /// Closes every connection.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int64_t connections() const;
  int64_t connections_refused() const;  // since the start

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_HTTP_SERVER_H_
