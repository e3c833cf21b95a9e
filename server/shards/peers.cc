#include "server/shards/peers.h"

#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shards/peer_list.h"

namespace attention::server {
namespace {

// A list may have networks, and any port of them: the channel that was not used
// for longest makes room.
constexpr size_t kMostChannels = 256;

// A server that was away is found soon after its return.
constexpr int kLeastBackoffMs = 100;
constexpr int kMostBackoffMs = 500;
constexpr int kKeepaliveMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 10'000;

}  // namespace

Peers::Peers(const ServerOptions& options,
             std::shared_ptr<grpc::ChannelCredentials> credentials)
    : options_(options),
      credentials_(credentials != nullptr
                       ? std::move(credentials)
                       : grpc::InsecureChannelCredentials()) {}

absl::Status Peers::Check(const std::string& target) const {
  if (options_.peers.empty()) {
    return absl::FailedPreconditionError(
        "shard.shards: this server asks no others (expected a server whose "
        "--peers lists them, or a request for its own shard alone)");
  }
  if (HasPeer(options_.peers, target)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "shard.shards: target '", target, "' is none of this server's --peers"));
}

std::shared_ptr<grpc::Channel> Peers::Find(const std::string& target) {
  const std::lock_guard lock(mutex_);
  auto found = known_.find(target);
  if (found == known_.end()) {
    // It stays unknown where there is no memory for a channel.
    found = known_.emplace(target, Known{Connect(target)}).first;
  }
  found->second.used = ++uses_;
  if (known_.size() > kMostChannels) {
    known_.erase(std::min_element(known_.begin(), known_.end(),
                                  [](const auto& a, const auto& b) {
                                    return a.second.used < b.second.used;
                                  }));
  }
  return found->second.channel;
}

std::shared_ptr<grpc::Channel> Peers::Connect(const std::string& target) const {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(
      static_cast<int>(options_.max_response_bytes));
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kLeastBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMostBackoffMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // Whoever called first tries again, as it sees fit.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // The list says where it connects to, and not the environment.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // The server's own is for CallWatch.
  arguments.SetInt(GRPC_ARG_ENABLE_CHANNELZ, 0);
  return grpc::CreateCustomChannel(target, credentials_, arguments);
}

}  // namespace attention::server
