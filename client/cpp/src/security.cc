#include "client/cpp/src/security.h"

#include <arpa/inet.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/cpp/src/tls_files.h"

namespace attention::client {
namespace {

// RFC 6750: what a header can carry.
bool IsTokenCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::StrContains("-._~+/=", c);
}

// "127.0.0.1:8001", "localhost"; a name may begin as an address does.
bool IsLoopback(absl::string_view address) {
  const size_t end = address.find_last_not_of("0123456789");
  if (end != absl::string_view::npos && address[end] == ':') {
    address = address.substr(0, end);
  }
  in_addr ipv4{};
  return address == "localhost" || address == "[::1]" ||
         (inet_pton(AF_INET, absl::StrCat(address).c_str(), &ipv4) == 1 &&
          ntohl(ipv4.s_addr) >> 24 == 127);
}

// Where nobody else reads what is sent in plain text.
bool StaysOnThisMachine(absl::string_view target) {
  if (absl::StartsWith(target, "unix:") ||
      absl::StartsWith(target, "unix-abstract:")) {
    return true;
  }
  for (const char* prefix : {"dns:///", "ipv4:", "ipv6:"}) {
    if (absl::ConsumePrefix(&target, prefix)) break;
  }
  // ipv4 and ipv6 take a list, of which gRPC calls any.
  const std::vector<absl::string_view> addresses = absl::StrSplit(target, ',');
  return std::all_of(addresses.begin(), addresses.end(), IsLoopback);
}

}  // namespace

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();  // fails, and throws nothing: a folder, for one
  return text.fail() ? "" : text.str();
}

absl::Status CheckSecurity(const ClientOptions& options) {
  if (options.tls && options.credentials != nullptr) {
    return absl::InvalidArgumentError(
        "tls: given, expected no credentials beside it");
  }
  if (options.tls &&
      options.tls->certificate_file.empty() != options.tls->key_file.empty()) {
    return absl::InvalidArgumentError(
        "tls: certificate_file and key_file belong together");
  }
  if (options.token.empty()) return absl::OkStatus();
  if (!std::all_of(options.token.begin(), options.token.end(),
                   IsTokenCharacter)) {
    return absl::InvalidArgumentError(
        "token: has characters that a header cannot carry (expected letters, "
        "digits and -._~+/=)");
  }
  if (!options.tls && options.credentials == nullptr &&
      !StaysOnThisMachine(options.target)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "token: would be sent to ", options.target,
        " in plain text, expected TLS or a server on this machine"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const ClientOptions& options) {
  if (options.credentials != nullptr) return options.credentials;
  if (!options.tls) return grpc::InsecureChannelCredentials();
  const auto pem = ReadTlsFiles(*options.tls);
  if (!pem.ok()) return pem.status();
  return grpc::SslCredentials(*pem);
}

void SetSecurity(const ClientOptions& options,
                 grpc::ChannelArguments& arguments) {
  if (StaysOnThisMachine(options.target)) {
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  }
  if (options.tls && !options.tls->server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls->server_name);
  }
}

void AddToken(const ClientOptions& options, grpc::ClientContext& context) {
  if (options.token.empty()) return;
  context.AddMetadata("authorization", absl::StrCat("Bearer ", options.token));
}

}  // namespace attention::client
