#ifndef ATTENTION_SERVER_SHARDS_SHARD_MESSAGE_H_
#define ATTENTION_SERVER_SHARDS_SHARD_MESSAGE_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/memory/received_slices.h"

namespace attention::server {

/// Of one server, and levels of them below the one that is called first.
inline constexpr size_t kMostShardsOfServer = 64;
inline constexpr int kMostShardLevels = 4;
/// Of all levels together: so many are looked at before anything is admitted.
inline constexpr size_t kMostShards = 1024;
/// Of one server. As many entries as a packed batch may have would do, too.
inline constexpr size_t kMostPartsOfServer = 256;
/// In the serialized message, where a field that comes again is merged with
/// what came.
inline constexpr size_t kMostTimesOfAField = 64;

/// An AttendShardsRequest, taken apart as far as this server must know it:
/// parts and other servers' shards stay bytes. They are shared with the message
/// that they came in.
struct ShardRequest {
  struct Other {
    std::string target;
    ReceivedMessage shard;  // a serialized Shard
  };

  ReceivedMessage common;              // a serialized AttendRequest
  std::vector<ReceivedMessage> parts;  // likewise; to be merged into it
  std::vector<Other> others;
};

/// INVALID_ARGUMENT where the bytes are no AttendShardsRequest, a field is
/// unknown or comes more than kMostTimesOfAField times, a shard has no parts, a
/// server would ask another one twice, or there are more levels than
/// kMostShardLevels; RESOURCE_EXHAUSTED for too many shards or parts.
absl::StatusOr<ShardRequest> ReadShardRequest(const ReceivedMessage& message);

/// The AttendRequest of a part.
ReceivedMessage PartMessage(const ShardRequest& request, size_t part);

/// The AttendShardsRequest that another server is sent.
grpc::ByteBuffer MessageToOther(const ShardRequest& request, size_t other);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SHARDS_SHARD_MESSAGE_H_
