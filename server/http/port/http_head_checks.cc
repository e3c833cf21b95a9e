#include "server/http/port/http_head_checks.h"

#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/utf8.h"

namespace attention::server {
namespace {

namespace http = boost::beast::http;

using Head = http::request_header<http::fields>;

// A field's value, and how often the field is there; of several the first.
struct Found {
  absl::string_view value;
  int times = 0;
};

Found Find(const Head& head, http::field name) {
  Found found;
  const auto [begin, end] = head.equal_range(name);
  for (auto field = begin; field != end; ++field) {
    if (found.times++ > 0) continue;
    found.value = {field->value().data(), field->value().size()};
  }
  return found;
}

// RFC 3986's characters of a host and a port, as a list: what is wrong within
// them names no host that anybody is asked by.
bool IsOfAuthority(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::string_view("-._~%!$&'()*+,;=:[]").find(c) !=
             absl::string_view::npos;
}

absl::Status CheckHost(const Head& head) {
  const Found host = Find(head, http::field::host);
  if (host.times > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("Host: ", host.times, " of them (expected one)"));
  }
  if (host.times == 0 && head.version() >= 11) {
    return absl::InvalidArgumentError("Host: none (expected one)");
  }
  if (!absl::c_all_of(host.value, IsOfAuthority)) {
    return absl::InvalidArgumentError(
        "Host: not a name or an address, with or without a port");
  }
  return absl::OkStatus();
}

absl::Status CheckTransferEncoding(const Head& head) {
  const Found coding = Find(head, http::field::transfer_encoding);
  if (coding.times == 0) return absl::OkStatus();
  if (head.version() < 11) {
    return absl::InvalidArgumentError(
        "Transfer-Encoding: over HTTP/1.0 (expected Content-Length)");
  }
  if (coding.times > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Transfer-Encoding: ", coding.times, " of them (expected one)"));
  }
  if (absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(coding.value),
                             "chunked")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("Transfer-Encoding: ", Shown(coding.value),
                   " (expected chunked, alone)"));
}

}  // namespace

absl::Status CheckHead(const Head& head) {
  if (absl::Status status = CheckHost(head); !status.ok()) return status;
  return CheckTransferEncoding(head);
}

}  // namespace attention::server
