#include "server/http/infer_json.h"

#include <nlohmann/json.hpp>

#include "server/http/infer_json_reader.h"

namespace attention::server {
namespace {

using Json = nlohmann::json;

// Of one string or number. The library keeps a copy of the one that it reads.
constexpr size_t kMostTokenBytes = 64 << 10;

// Whether every string and number is short enough to be copied.
absl::Status CheckTokens(absl::string_view text) {
  size_t token = 0;
  bool in_string = false;
  bool escaped = false;
  for (const char c : text) {
    if (in_string) {
      in_string = escaped || c != '"';
      escaped = !escaped && c == '\\';
      token = in_string ? token + 1 : 0;
    } else if (c == '"') {
      in_string = true;
      token = 0;
    } else {
      const bool ends = c == ',' || c == '[' || c == ']' || c == ' ' ||
                        c == '{' || c == '}' || c == ':' || c == '\n';
      token = ends ? 0 : token + 1;
    }
    if (token > kMostTokenBytes) {
      return InferJsonError("body", "a string or a number of more than 64 KiB");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<InferJson> ReadInferJson(
    absl::string_view text, const std::function<CountedBytes()>& none) {
  if (absl::Status tokens = CheckTokens(text); !tokens.ok()) return tokens;
  InferJsonReader reader(text.size(), none, nullptr);
  if (!Json::sax_parse(text.begin(), text.end(), &reader)) {
    return reader.status();
  }
  if (!reader.again()) return reader.Take();
  const inference::ModelInferRequest known = reader.Take().fields;
  InferJsonReader second(text.size(), none, &known);
  if (!Json::sax_parse(text.begin(), text.end(), &second)) {
    return second.status();
  }
  return second.Take();
}

}  // namespace attention::server
