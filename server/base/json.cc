#include "server/base/json.h"

#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/utf8.h"

namespace attention::server {

namespace {

// Bytes of a text that is in a message.
constexpr size_t kMostTold = 64;

template <typename AnyJson>
std::string Line(const AnyJson& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false,
                   AnyJson::error_handler_t::replace);
}

}  // namespace

std::string JsonLine(const OrderedJson& json) { return Line(json); }
std::string JsonLine(const Json& json) { return Line(json); }

Json ParseJson(absl::string_view text) {
  return Json::parse(text.begin(), text.end(), nullptr,
                     /*allow_exceptions=*/false);
}

absl::Status KeyError(absl::string_view key, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(key, ": ", problem));
}

absl::Status WrongValue(absl::string_view key, const Json& had,
                        absl::string_view expected) {
  return KeyError(
      key,
      absl::StrCat(had.is_array()    ? "an array"
                   : had.is_object() ? "an object"
                                     : TruncateUtf8(JsonLine(had), kMostTold),
                   " (expected ", expected, ")"));
}

absl::StatusOr<Json> ParseStrictJson(absl::string_view text, int deepest) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  std::string twice;
  bool too_deep = false;
  const auto note = [&](int depth, Json::parse_event_t event, Json& parsed) {
    too_deep = too_deep || depth > deepest;
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key &&
        !keys.back().insert(parsed.get<std::string>()).second) {
      twice = parsed.get<std::string>();
    }
    return !too_deep;
  };
  try {
    Json json = Json::parse(text.begin(), text.end(), note);
    if (too_deep) {
      return absl::InvalidArgumentError(
          "objects and arrays are nested deeper than any key asks for");
    }
    if (!twice.empty()) return KeyError(twice, "comes twice");
    if (!json.is_object()) {
      return absl::InvalidArgumentError("not a JSON object");
    }
    return json;
  } catch (const Json::exception& error) {
    // After "[json.exception.parse_error.101] ".
    const absl::string_view what = error.what();
    return absl::InvalidArgumentError(what.substr(what.find("] ") + 2));
  }
}

absl::Status CheckKeys(absl::string_view path, const Json& object,
                       const std::vector<std::string>& known) {
  for (const auto& [key, value] : object.items()) {
    if (absl::c_linear_search(known, key)) continue;
    return KeyError(
        absl::StrCat(path, path.empty() ? "" : ".", absl::CHexEscape(key)),
        known.empty() ? "unknown key (expected none)"
                      : absl::StrCat("unknown key (expected ",
                                     absl::StrJoin(known, ", "), ")"));
  }
  return absl::OkStatus();
}

}  // namespace attention::server
