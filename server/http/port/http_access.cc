#include "server/http/port/http_access.h"

#include <boost/asio/ip/address.hpp>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/base/utf8.h"

namespace attention::server {
namespace {

constexpr char kAnyHost[] = "*";

// What is understood here beyond what every page may send (Fetch Standard).
constexpr char kAllowedHeaders[] =
    "Authorization, Content-Type, Inference-Header-Content-Length, "
    "grpc-timeout, traceparent";
constexpr char kExposedHeaders[] =
    "Inference-Header-Content-Length, Retry-After, traceparent";
constexpr char kPreflightSeconds[] = "600";

// The dot ends a full name.
absl::string_view WithoutDot(absl::string_view name) {
  absl::ConsumeSuffix(&name, ".");
  return name;
}

std::vector<std::string> AsCompared(std::vector<std::string> hosts) {
  for (std::string& host : hosts) {
    host = absl::AsciiStrToLower(WithoutDot(host));
  }
  return hosts;
}

// Browsers leave out the scheme's own port.
std::vector<std::string> AsBrowsersSay(std::vector<std::string> origins) {
  for (std::string& origin : origins) {
    absl::AsciiStrToLower(&origin);
    const bool tls = absl::StartsWith(origin, "https:");
    const absl::string_view port = tls ? ":443" : ":80";
    if (absl::EndsWith(origin, port)) {
      origin.resize(origin.size() - port.size());
    }
  }
  return origins;
}

bool IsAddress(absl::string_view host) {
  if (absl::ConsumePrefix(&host, "[") && !absl::ConsumeSuffix(&host, "]")) {
    return false;
  }
  boost::system::error_code error;
  boost::asio::ip::make_address(static_cast<std::string>(host), error);
  return !error;
}

bool IsNumber(absl::string_view text) {
  return absl::c_all_of(text, [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
}

// Without its port.
absl::string_view NameOfHost(absl::string_view host) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');  // an IPv6 address ends there
  if (colon != absl::string_view::npos && IsNumber(host.substr(colon + 1)) &&
      (bracket == absl::string_view::npos || colon > bracket)) {
    host = host.substr(0, colon);
  }
  return WithoutDot(host);
}

// A browser sends no other type that is safe to take without asking first.
bool IsBodyType(absl::string_view type) {
  type = absl::StripAsciiWhitespace(type.substr(0, type.find(';')));
  return absl::EqualsIgnoreCase(type, "application/json") ||
         absl::EqualsIgnoreCase(type, "application/octet-stream") ||
         absl::EndsWithIgnoreCase(type, "+json");
}

bool IsHostName(absl::string_view text) {
  return !text.empty() && absl::c_all_of(text, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
           c == '.' || c == '_';
  });
}

HttpReply Preflight() {
  return {.status = 204,
          .headers = {{"Access-Control-Allow-Methods", "GET, HEAD, POST"},
                      {"Access-Control-Allow-Headers", kAllowedHeaders},
                      {"Access-Control-Max-Age", kPreflightSeconds}}};
}

}  // namespace

HttpAccess::HttpAccess(std::vector<std::string> origins,
                       std::vector<std::string> hosts)
    : origins_(AsBrowsersSay(std::move(origins))),
      hosts_(AsCompared(std::move(hosts))) {}

std::string HttpAccess::AllowedOrigin(const HttpRequest& request) const {
  const std::string& origin = request.Header("origin");
  return absl::c_linear_search(origins_, absl::AsciiStrToLower(origin)) ? origin
                                                                        : "";
}

bool HttpAccess::AllowsHost(const std::string& host) const {
  const std::string name = absl::AsciiStrToLower(NameOfHost(host));
  return name == "localhost" || IsAddress(name) ||
         absl::c_linear_search(hosts_, name) ||
         absl::c_linear_search(hosts_, kAnyHost);
}

std::optional<HttpReply> HttpAccess::Answer(const HttpRequest& request,
                                            bool probe, bool has_body) const {
  const std::string origin = AllowedOrigin(request);
  if (request.headers.contains("origin") && origin.empty()) {
    return HttpError(
        403, absl::StrCat("Origin: ", Shown(request.Header("origin")),
                          " (web pages are served whose origin the server's "
                          "--http-allow-origin names)"));
  }
  // Only HTTP/1.0 may come without one, which browsers do not speak.
  const std::string& host = request.Header("host");
  if (!probe && !request.encrypted && request.headers.contains("host") &&
      !AllowsHost(host)) {
    return HttpError(
        403, absl::StrCat("Host: ", Shown(host),
                          " (expected an IP address, localhost, or a name that "
                          "the server's --http-host lists)"));
  }
  if (!origin.empty() && request.method == "OPTIONS" &&
      request.headers.contains("access-control-request-method")) {
    return Preflight();
  }
  const std::string& type = request.Header("content-type");
  if (has_body && !type.empty() && !IsBodyType(type)) {
    return HttpError(
        415,
        absl::StrCat("Content-Type: ", Shown(type),
                     " (expected application/json, or application/octet-stream "
                     "with Inference-Header-Content-Length; with curl: -H "
                     "'Content-Type: application/json')"));
  }
  return std::nullopt;
}

void HttpAccess::AddHeaders(const std::string& origin, HttpReply& reply) {
  reply.headers.emplace_back("Access-Control-Allow-Origin", origin);
  reply.headers.emplace_back("Access-Control-Expose-Headers", kExposedHeaders);
  reply.headers.emplace_back("Vary", "Origin");
}

bool IsHostNameOrAny(const std::string& text) {
  return text == kAnyHost || IsHostName(WithoutDot(text));
}

bool IsOrigin(const std::string& text) {
  absl::string_view host = text;
  if (!absl::ConsumePrefix(&host, "https://") &&
      !absl::ConsumePrefix(&host, "http://")) {
    return false;
  }
  if (absl::EndsWith(host, ":")) return false;
  const std::string name(NameOfHost(host));
  return IsHostName(name) || (absl::StartsWith(name, "[") && IsAddress(name));
}

}  // namespace attention::server
