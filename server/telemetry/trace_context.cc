#include "server/telemetry/trace_context.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

constexpr size_t kSize = 55;  // of version 00
// "Sampled", and "random" of level 2 of the standard; the others must be passed
// on as zeros.
constexpr int kKnownFlags = 3;

bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

bool IsId(absl::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != absl::string_view::npos;
}

}  // namespace

std::string ReadTraceParent(absl::string_view value) {
  const absl::string_view version = value.substr(0, 2);
  const absl::string_view known = value.substr(0, kSize);
  if (known.size() < kSize || !IsHex(version) || version == "ff") return "";
  if (value.size() > kSize && (version == "00" || value[kSize] != '-')) {
    return "";
  }
  const bool valid = known[2] == '-' && IsId(known.substr(3, 32)) &&
                     known[35] == '-' && IsId(known.substr(36, 16)) &&
                     known[52] == '-' && IsHex(known.substr(53));
  if (!valid) return "";
  const int flags = known[54] <= '9' ? known[54] - '0' : known[54] - 'a' + 10;
  return absl::StrCat("00", known.substr(2, 51), "0", flags & kKnownFlags);
}

std::string TraceId(absl::string_view trace_parent) {
  return static_cast<std::string>(trace_parent.substr(3, 32));
}

}  // namespace attention::server
