#ifndef ATTENTION_SERVER_BASE_STRICT_JSON_H_
#define ATTENTION_SERVER_BASE_STRICT_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

/// JSON that people write for the server: what is not understood is an error.
namespace attention::server {

/// INVALID_ARGUMENT with "KEY: PROBLEM".
absl::Status KeyError(absl::string_view key, absl::string_view problem);

/// An object, with at most `deepest` levels in it. The library takes the last
/// of two equal keys; here that is an error, because whoever reads the file may
/// take the first. INVALID_ARGUMENT says what is wrong.
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text,
                                               int deepest);

/// Every key of `object` is one of `known`, else INVALID_ARGUMENT. `path` is
/// the object's own key, "" for the file's.
absl::Status CheckKeys(absl::string_view path, const nlohmann::json& object,
                       const std::vector<std::string>& known);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_BASE_STRICT_JSON_H_
