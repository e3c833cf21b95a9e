#include "server/shards/peer_list.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace attention::server {
namespace {

constexpr char kAnyPort[] = "*";
constexpr int kBitsOfByte = 8;
constexpr int kBitsOfV4 = 32;
constexpr int kBitsOfV6 = 128;
constexpr int kHighestPort = 65535;

// An IP address, 4 or 16 bytes of it.
struct Address {
  std::array<uint8_t, sizeof(in6_addr)> bytes{};
  int bits = 0;  // all of them
};

std::optional<Address> ParseAddress(absl::string_view text) {
  const bool v6 = absl::ConsumePrefix(&text, "[");
  if (v6 && !absl::ConsumeSuffix(&text, "]")) return std::nullopt;
  // inet_pton() reads up to it, and so does gRPC, to which the port is lost.
  if (absl::StrContains(text, '\0')) return std::nullopt;
  Address address;
  address.bits = v6 ? kBitsOfV6 : kBitsOfV4;
  const std::string terminated(text);
  if (::inet_pton(v6 ? AF_INET6 : AF_INET, terminated.c_str(),
                  address.bytes.data()) != 1) {
    return std::nullopt;
  }
  return address;
}

bool SamePrefix(const Address& a, const Address& b, int bits) {
  for (int i = 0; i < bits; ++i) {
    const auto byte = static_cast<size_t>(i / kBitsOfByte);
    const int shift = kBitsOfByte - 1 - i % kBitsOfByte;
    if (((a.bytes[byte] ^ b.bytes[byte]) >> shift & 1) != 0) return false;
  }
  return true;
}

bool IsPort(absl::string_view text) {
  int port = 0;
  return !text.empty() && absl::c_all_of(text, absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, &port) && port >= 1 && port <= kHighestPort;
}

bool IsHostName(absl::string_view text) {
  return !text.empty() && absl::c_all_of(text, [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

struct HostAndPort {
  absl::string_view host;
  absl::string_view port;
};

std::optional<HostAndPort> Split(absl::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return std::nullopt;
  return HostAndPort{text.substr(0, colon), text.substr(colon + 1)};
}

struct Network {
  Address address;
  int bits = 0;  // that addresses in it have in common
};

// Of "10.1.0.0/16"; none where there is no slash, or it is malformed.
std::optional<Network> ParseNetwork(absl::string_view host) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(host, absl::MaxSplits('/', 1));
  const std::optional<Address> address = ParseAddress(parts.first);
  int bits = 0;
  if (!address || !absl::c_all_of(parts.second, absl::ascii_isdigit) ||
      !absl::SimpleAtoi(parts.second, &bits) || bits > address->bits) {
    return std::nullopt;
  }
  return Network{*address, bits};
}

bool HasHost(absl::string_view entry, absl::string_view host) {
  if (const std::optional<Network> network = ParseNetwork(entry)) {
    const std::optional<Address> address = ParseAddress(host);
    return address && address->bits == network->address.bits &&
           SamePrefix(*address, network->address, network->bits);
  }
  return absl::EqualsIgnoreCase(entry, host);
}

}  // namespace

bool IsPeerEntry(const std::string& text) {
  const std::optional<HostAndPort> entry = Split(text);
  return entry && (entry->port == kAnyPort || IsPort(entry->port)) &&
         (IsHostName(entry->host) || ParseAddress(entry->host) ||
          ParseNetwork(entry->host));
}

bool ReachesBeyondLoopback(const std::string& entry) {
  constexpr uint8_t kLoopback = 127;  // 127.0.0.0/8
  const std::optional<HostAndPort> of = Split(entry);
  if (!of) return true;
  if (of->host == "[::1]" || absl::EqualsIgnoreCase(of->host, "localhost")) {
    return false;
  }
  const std::optional<Network> network = ParseNetwork(of->host);
  const std::optional<Address> address =
      network ? network->address : ParseAddress(of->host);
  return !address || address->bits != kBitsOfV4 ||
         address->bytes[0] != kLoopback ||
         (network && network->bits < kBitsOfByte);
}

bool HasPeer(const std::vector<std::string>& entries,
             const std::string& target) {
  const std::optional<HostAndPort> wanted = Split(target);
  if (!wanted || !IsPort(wanted->port) ||
      !(IsHostName(wanted->host) || ParseAddress(wanted->host))) {
    return false;
  }
  return absl::c_any_of(entries, [&](const std::string& entry) {
    const std::optional<HostAndPort> of = Split(entry);
    return of && (of->port == kAnyPort || of->port == wanted->port) &&
           HasHost(of->host, wanted->host);
  });
}

}  // namespace attention::server
