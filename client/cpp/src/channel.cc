#include "client/cpp/src/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "client/cpp/src/security.h"

namespace attention::client {
namespace {

using std::chrono::milliseconds;

// gRPC keeps its times in 32-bit milliseconds in places.
constexpr milliseconds kLongestBackoff = std::chrono::hours(24);
constexpr milliseconds kLongestDeadline = std::chrono::hours(24 * 365);

absl::Status OutOfRange(absl::string_view option, int64_t value,
                        absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(option, ": ", value, ", expected ", expected));
}

std::string Seconds(milliseconds time) {
  return absl::StrFormat("%d.%03ds", time.count() / 1000, time.count() % 1000);
}

// Whether a resolver of gRPC's is named. Those of URIs that people have from
// browsers are none.
bool HasScheme(absl::string_view target) {
  constexpr std::array<absl::string_view, 6> kSchemes = {
      "unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:", "vsock:"};
  return std::any_of(kSchemes.begin(), kSchemes.end(),
                     [target](absl::string_view scheme) {
                       return absl::StartsWith(target, scheme);
                     }) ||
         (absl::StrContains(target, "://") &&
          !absl::StartsWith(target, "http://") &&
          !absl::StartsWith(target, "https://"));
}

// HOST:PORT or [IPV6]:PORT. gRPC takes more: without a port it calls port 443,
// and of a port above 65535 it takes the last 16 bits.
bool IsHostAndPort(absl::string_view target) {
  const size_t colon = target.rfind(':');
  if (colon == absl::string_view::npos) return false;
  const absl::string_view host = target.substr(0, colon);
  const absl::string_view port = target.substr(colon + 1);
  const bool is_ipv6 = absl::StartsWith(host, "[") && absl::EndsWith(host, "]");
  int number = 0;
  return !host.empty() && !absl::StrContains(host, "/") &&
         (is_ipv6 || !absl::StrContains(host, ":")) &&
         std::all_of(port.begin(), port.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(port, &number) && number >= 1 && number <= 65535;
}

}  // namespace

absl::Status CheckOptions(const ClientOptions& options) {
  if (!HasScheme(options.target) && !IsHostAndPort(options.target)) {
    return absl::InvalidArgumentError(
        absl::StrCat("target: \"", absl::CEscape(options.target),
                     "\", expected HOST:PORT or unix:PATH"));
  }
  if (options.deadline < milliseconds(0) ||
      options.deadline > kLongestDeadline) {
    return OutOfRange("deadline", options.deadline.count(),
                      "0 (none) to one year, in milliseconds");
  }
  if (options.max_attempts < 1 || options.max_attempts > 5) {
    return OutOfRange("max_attempts", options.max_attempts, "1 to 5");
  }
  if (options.initial_backoff < milliseconds(1) ||
      options.initial_backoff > kLongestBackoff) {
    return OutOfRange("initial_backoff", options.initial_backoff.count(),
                      "1 millisecond to one day");
  }
  if (options.max_backoff < options.initial_backoff ||
      options.max_backoff > kLongestBackoff) {
    return OutOfRange("max_backoff", options.max_backoff.count(),
                      "initial_backoff to one day, in milliseconds");
  }
  if (options.max_message_bytes < 1) {
    return OutOfRange("max_message_bytes", options.max_message_bytes,
                      "1 to 2^31 - 1");
  }
  return CheckSecurity(options);
}

std::string ServiceConfig(const ClientOptions& options) {
  if (options.max_attempts == 1) return "{}";
  return absl::StrFormat(
      R"({"methodConfig":[{
  "name":[{"service":"attention.v1.AttentionService","method":"Attend"},
          {"service":"attention.v1.AttentionService","method":"GetServerInfo"},
          {"service":"attention.v1.KeyValueService","method":"Append"},
          {"service":"attention.v1.KeyValueService","method":"Truncate"},
          {"service":"attention.v1.KeyValueService","method":"Describe"},
          {"service":"attention.v1.KeyValueService","method":"List"},
          {"service":"attention.v1.KeyValueService","method":"Delete"},
          {"service":"attention.v1.KeyValueService","method":"Export"},
          {"service":"grpc.health.v1.Health","method":"Check"}],
  "retryPolicy":{"maxAttempts":%d,
                 "initialBackoff":"%s","maxBackoff":"%s",
                 "backoffMultiplier":2,
                 "retryableStatusCodes":["UNAVAILABLE"]}}]})",
      options.max_attempts, Seconds(options.initial_backoff),
      Seconds(options.max_backoff));
}

std::shared_ptr<grpc::Channel> MakeChannel(
    const ClientOptions& options,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    const Keepalive& keepalive) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(options.max_message_bytes);
  arguments.SetMaxSendMessageSize(options.max_message_bytes);
  arguments.SetServiceConfigJSON(ServiceConfig(options));
  // A request larger than this buffer is never sent twice (gRPC's default is
  // 256 KiB), and with attention most are.
  arguments.SetInt(GRPC_ARG_PER_RPC_RETRY_BUFFER_SIZE,
                   std::numeric_limits<int>::max());
  // A call's retries are of no use while the channel itself waits before it
  // connects again (gRPC's default is one second at first, two minutes later).
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   static_cast<int>(options.initial_backoff.count()));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                   static_cast<int>(options.max_backoff.count()));
  // Without calls there are no pings, and gRPC sends two of them at most before
  // it has data to send: any server allows that.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                   static_cast<int>(keepalive.time.count()));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   static_cast<int>(keepalive.timeout.count()));
  if (options.load_balancing == LoadBalancing::kRoundRobin) {
    arguments.SetLoadBalancingPolicyName("round_robin");
  }
  SetSecurity(options, arguments);
  return grpc::CreateCustomChannel(options.target, credentials, arguments);
}

}  // namespace attention::client
