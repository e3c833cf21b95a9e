#ifndef ATTENTION_SERVER_SHARDS_PEERS_H_
#define ATTENTION_SERVER_SHARDS_PEERS_H_

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "server/options/options.h"

namespace attention::server {

/// Servers that this one may ask (--peers), and the channels to them. May be
/// used from several threads at once.
class Peers {
 public:
  /// `credentials`: of channels; null: in plain text.
  Peers(const ServerOptions& options,
        std::shared_ptr<grpc::ChannelCredentials> credentials);

  /// FAILED_PRECONDITION where no server is listed, PERMISSION_DENIED where
  /// "HOST:PORT" is none of those that are.
  absl::Status Check(const std::string& target) const;

  /// A channel to a target that Check() passes. Calls on it fail at once where
  /// nobody answers there.
  std::shared_ptr<grpc::Channel> Find(const std::string& target);

 private:
  struct Known {
    std::shared_ptr<grpc::Channel> channel;
    uint64_t used = 0;  // larger: later
  };

  std::shared_ptr<grpc::Channel> Connect(const std::string& target) const;

  const ServerOptions& options_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::mutex mutex_;
  std::map<std::string, Known> known_;
  uint64_t uses_ = 0;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SHARDS_PEERS_H_
