#ifndef ATTENTION_SERVER_BASE_JSON_H_
#define ATTENTION_SERVER_BASE_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

/// JSON as the server reads and writes it. The library's parse() and dump() are
/// called in json.cc alone: they are templates, and each file that calls them
/// takes a second more to compile.
namespace attention::server {

/// What is read: a key of many is soon found.
using Json = nlohmann::json;
/// What is written: keys stay in the order in which they were added.
using OrderedJson = nlohmann::ordered_json;

/// In one line. Bytes that are not UTF-8 become U+FFFD instead of an exception.
std::string JsonLine(const OrderedJson& json);
std::string JsonLine(const Json& json);

/// is_discarded() where `text` is not JSON.
Json ParseJson(absl::string_view text);

// JSON that people write for the server: what is not understood is an error.

/// INVALID_ARGUMENT with "KEY: PROBLEM".
absl::Status KeyError(absl::string_view key, absl::string_view problem);

/// Likewise "KEY: HAD (expected EXPECTED)"; of a text its beginning is told,
/// and of arrays and objects that they are such.
absl::Status WrongValue(absl::string_view key, const Json& had,
                        absl::string_view expected);

/// An object, with at most `deepest` levels in it. The library takes the last
/// of two equal keys; here that is an error, because whoever reads the file may
/// take the first. INVALID_ARGUMENT says what is wrong.
absl::StatusOr<Json> ParseStrictJson(absl::string_view text, int deepest);

/// Every key of `object` is one of `known`, else INVALID_ARGUMENT. `path` is
/// the object's own key, "" for the file's.
absl::Status CheckKeys(absl::string_view path, const Json& object,
                       const std::vector<std::string>& known);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_BASE_JSON_H_
