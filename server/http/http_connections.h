#ifndef ATTENTION_SERVER_HTTP_HTTP_CONNECTIONS_H_
#define ATTENTION_SERVER_HTTP_HTTP_CONNECTIONS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "server/transport/connection_limits.h"

namespace attention::server {

/// Counts connections, and says when there is one too many. May be used from
/// several threads at once, and must outlive its places.
class HttpConnections {
 public:
  /// One connection's, given back when it is destroyed.
  class Place {
   public:
    Place(HttpConnections& all, std::string address)
        : all_(all), address_(std::move(address)) {}
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

   private:
    HttpConnections& all_;
    const std::string address_;
  };

  explicit HttpConnections(const ConnectionLimits& limits) : limits_(limits) {}

  /// A place for a connection from `address`; null where all are taken, or
  /// those of one address.
  std::unique_ptr<Place> Take(const std::string& address);

  int64_t open() const;
  int64_t refused() const;  // since the start

 private:
  const ConnectionLimits limits_;
  mutable std::mutex mutex_;
  int64_t open_ = 0;
  int64_t refused_ = 0;
  std::unordered_map<std::string, int64_t> of_address_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_HTTP_CONNECTIONS_H_
