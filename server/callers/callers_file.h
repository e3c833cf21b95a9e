#ifndef ATTENTION_SERVER_CALLERS_CALLERS_FILE_H_
#define ATTENTION_SERVER_CALLERS_CALLERS_FILE_H_

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/callers/caller.h"

namespace attention::server {

/// The SHA-256 of a token: the file has no token that could be stolen from it.
using TokenHash = std::array<unsigned char, 32>;
TokenHash HashOfToken(absl::string_view token);

/// Who calls, by what a call shows.
struct CallerTable {
  /// By the first bytes of the hash; the rest is compared in constant time.
  struct Token {
    TokenHash hash;
    std::shared_ptr<const Caller> caller;
  };
  absl::flat_hash_map<uint64_t, Token> by_token;
  absl::flat_hash_map<std::string, std::shared_ptr<const Caller>>
      by_certificate;
  absl::flat_hash_map<std::string, std::shared_ptr<const Caller>> by_name;

  /// Null where there is none.
  std::shared_ptr<const Caller> OfToken(absl::string_view token) const;
};

/// The callers file's text, in JSON:
///
///   {"callers": [{
///     "name": "ranker",                      letters, digits and ._-@/
///     "tokens_sha256": ["9f86d0..."],        64 hexadecimal digits each
///     "certificates": ["ranker.example.org"] a name in the certificate
///     "may": ["shared_memory", "model_control", "sequence_files"],
///     "max_requests_in_flight": 64,
///     "max_bytes_in_flight": 268435456,
///     "max_requests_per_second": 100,
///     "max_bytes_per_second": 1073741824,
///     "max_dimension": 65536,
///     "max_weights_bytes": 16777216,
///     "max_compute_seconds": 30}]}
///
/// All but the name may be left out. INVALID_ARGUMENT with the key for what is
/// wrong, what is unknown and what two callers have.
absl::StatusOr<CallerTable> ParseCallers(absl::string_view text);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_CALLERS_CALLERS_FILE_H_
