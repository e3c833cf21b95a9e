#ifndef ATTENTION_SERVER_SHARDS_PEER_STATUS_H_
#define ATTENTION_SERVER_SHARDS_PEER_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace attention::server {

/// The status that a call of another server ended with, as the caller of this
/// one is told: the same code and details, and whose it is (ShardError), unless
/// a server further on has said that.
absl::Status StatusOfPeer(const grpc::Status& status,
                          const std::string& target);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SHARDS_PEER_STATUS_H_
