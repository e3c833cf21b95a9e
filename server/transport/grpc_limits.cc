#include "server/transport/grpc_limits.h"

#include <grpc/grpc.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace attention::server {
namespace {

// A caller that connects and does not say what HTTP/2 asks of it first.
constexpr std::chrono::seconds kHandshakeTimeout{20};
// For the answer to a ping.
constexpr std::chrono::milliseconds kMostPingTimeout{20'000};
// Callers may ask the server as often as this.
constexpr std::chrono::seconds kLeastPingInterval{10};

int Milliseconds(std::chrono::milliseconds time) {
  return static_cast<int>(
      std::min<int64_t>(time.count(), std::numeric_limits<int>::max()));
}

// gRPC's way to say never.
int MillisecondsOrNever(std::chrono::milliseconds time) {
  return time.count() == 0 ? std::numeric_limits<int>::max()
                           : Milliseconds(time);
}

void SetKeepalive(std::chrono::milliseconds silence,
                  grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             Milliseconds(kHandshakeTimeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(silence));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             Milliseconds(std::min(silence, kMostPingTimeout)));
  // Between calls too, in both directions: half-open connections end, and a
  // caller that keeps its own alive is not sent away for too many pings.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      Milliseconds(kLeastPingInterval));
}

}  // namespace

void SetGrpcLimits(const ServerOptions& options, int64_t streams,
                   int64_t message_memory, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_request_bytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             static_cast<int>(streams));
  builder.AddChannelArgument(
      GRPC_ARG_MAX_CONNECTION_IDLE_MS,
      MillisecondsOrNever(options.connection_idle_timeout));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                             MillisecondsOrNever(options.max_connection_age));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                             Milliseconds(options.drain_time));
  SetKeepalive(options.keepalive_time, builder);
  // CallWatch asks it; without what it would keep of each connection's past.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 1);
  builder.AddChannelArgument(GRPC_ARG_MAX_CHANNEL_TRACE_EVENT_MEMORY_PER_NODE,
                             0);
  // A message of 1 MiB can unfold to 1 GiB before anybody sees its size, and
  // attention's numbers hardly shrink.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  grpc::ResourceQuota quota("attention-server");
  quota.Resize(static_cast<size_t>(message_memory));
  builder.SetResourceQuota(quota);
}

}  // namespace attention::server
