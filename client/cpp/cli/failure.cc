#include "client/cpp/cli/failure.h"

#include <algorithm>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "attention_client/client.h"
#include "client/cpp/cli/label.h"

namespace attention::cli {
namespace {

constexpr char kUsagePayload[] = "attention-client/usage";

// Messages hold what servers and files say: it stays on one line and commands
// no terminal.
std::string OneLine(absl::string_view text) {
  std::string line(text);
  std::replace_if(line.begin(), line.end(), absl::ascii_iscntrl, ' ');
  return Printable(line);
}

// gRPC's own words where it has no connection; any others are a server's, a
// proxy's, or about a connection that was lost.
bool IsWithoutConnection(absl::string_view message) {
  return absl::StartsWith(message, "failed to connect to all addresses") ||
         absl::StartsWith(message, "DNS resolution failed");
}

// Of a connection that was not made: whether something listens there all the
// same, by gRPC's words for the last address, and what to do then.
std::string WhatListens(absl::string_view message) {
  if (absl::StrContains(message, "Ssl handshake failed") ||
      absl::StrContains(message, "is not in peer certificate")) {
    return "TLS fails there: --tls-ca and --tls-server-name say whom to "
           "trust; a server without a certificate is called without --tls";
  }
  if (absl::StrContains(message, "http1.x server")) {
    return "what listens there speaks HTTP/1.1: gRPC has a port of its own";
  }
  if (absl::StrContains(message, "Socket closed")) {
    return "what listens there closes the connection: a server with a "
           "certificate needs --tls or --tls-ca, and may want "
           "--tls-certificate";
  }
  return "";
}

// Empty where the server does not say it.
std::string WhenToTryAgain(const absl::Status& status) {
  const auto time = client::RetryAfter(status);
  return time ? absl::StrCat("; try again in ", time->count(), " ms") : "";
}

}  // namespace

absl::Status UsageError(absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kUsagePayload, absl::Cord());
  return status;
}

absl::Status CallError(const absl::Status& status, const std::string& server) {
  const std::string what = absl::StrCat(absl::StatusCodeToString(status.code()),
                                        ": ", status.message());
  const std::string when = WhenToTryAgain(status);
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      if (!IsWithoutConnection(status.message())) {
        return absl::UnavailableError(
            absl::StrCat(server, " cannot serve now (", what, ")",
                         when.empty() ? "; try again" : when));
      }
      if (const std::string listens = WhatListens(status.message());
          !listens.empty()) {
        return absl::UnavailableError(absl::StrCat("no connection to ", server,
                                                   " (", what, "); ", listens));
      }
      return absl::UnavailableError(absl::StrCat(
          "no server answers at ", server, " (", what,
          "); start one with attention-server, or name another with --server "
          "HOST:PORT"));
    case absl::StatusCode::kDeadlineExceeded:
      return absl::DeadlineExceededError(
          absl::StrCat(server, " did not answer in time (", what,
                       "); --deadline SECONDS gives it longer"));
    default:
      return {status.code(), absl::StrCat(what, when)};
  }
}

int Report(const absl::Status& status) {
  if (status.ok()) return kExitSuccess;
  std::cerr << "attention-client: " << OneLine(status.message()) << "\n";
  return status.GetPayload(kUsagePayload) ? kExitUsage : kExitFailure;
}

void Note(absl::string_view message) {
  std::cerr << "note: " << OneLine(message) << "\n";
}

}  // namespace attention::cli
