#include "server/options/option_checks.h"

#include <string>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/options/option_table.h"
#include "server/shards/peer_list.h"

namespace attention::server {
namespace {

constexpr char kWrongOption[] = "attention-server/wrong-option";

template <typename... Parts>
absl::Status Wrong(absl::string_view flag, const Parts&... parts) {
  return WrongOptionError(absl::StrCat(flag, ": ", parts...));
}

// Callers' tokens go to them.
absl::Status CheckPeers(const ServerOptions& options) {
  const bool certificate = !options.tls_certificate.empty();
  if (options.peers.empty() || !certificate) {
    if (!options.peers_ca.empty()) {
      return Wrong("--peers-ca", "'", options.peers_ca,
                   "' (expected --peers and --tls-certificate beside it)");
    }
  } else if (options.peers_ca.empty()) {
    return Wrong("--peers", "'", absl::StrJoin(options.peers, ","),
                 "' (expected --peers-ca beside it and --tls-certificate)");
  }
  const auto beyond = absl::c_find_if(options.peers, ReachesBeyondLoopback);
  if (certificate || options.insecure || beyond == options.peers.end()) {
    return absl::OkStatus();
  }
  return Wrong("--peers", "'", *beyond,
               "' is asked over a network without encryption (expected "
               "--tls-certificate, --tls-key and --peers-ca; or --insecure, "
               "where nobody else reads that network; or addresses of "
               "loopback)");
}

// What goes with what.
absl::Status CheckTogether(const ServerOptions& options) {
  if (options.allow_model_control && options.model_repository.empty()) {
    return Wrong("--allow-model-control",
                 "true (expected --model-repository beside it)");
  }
  if (options.http && options.http_port != 0 &&
      options.http_port == options.grpc_port &&
      options.http_address == options.grpc_address) {
    return Wrong("--http-port", options.http_port,
                 " is --grpc-port, too (expected another one, or 0)");
  }
  const bool certificate = !options.tls_certificate.empty();
  if (certificate && options.tls_key.empty()) {
    return Wrong("--tls-certificate", "'", options.tls_certificate,
                 "' (expected --tls-key beside it)");
  }
  if (!certificate && !options.tls_key.empty()) {
    return Wrong("--tls-key", "'", options.tls_key,
                 "' (expected --tls-certificate beside it)");
  }
  if (!certificate && !options.tls_client_ca.empty()) {
    return Wrong("--tls-client-ca", "'", options.tls_client_ca,
                 "' (expected --tls-certificate and --tls-key beside it)");
  }
  if (certificate && options.insecure) {
    return Wrong("--insecure",
                 "true (expected no --tls-certificate beside it)");
  }
  return CheckPeers(options);
}

}  // namespace

absl::Status WrongOptionError(absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kWrongOption, absl::Cord());
  return status;
}

bool IsWrongOption(const absl::Status& status) {
  return status.GetPayload(kWrongOption).has_value();
}

absl::Status CheckOptions(const ServerOptions& options) {
  for (const OptionRow& row : OptionTable()) {
    const std::string wrong = std::visit(
        [&](const auto& kind) { return kind.Wrong(options.*kind.member); },
        row.kind);
    if (!wrong.empty()) return Wrong(row.flag, wrong);
  }
  return CheckTogether(options);
}

}  // namespace attention::server
