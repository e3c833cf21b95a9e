#include "server/telemetry/trace_context.h"

#include <algorithm>

namespace attention::server {
namespace {

bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

bool IsId(absl::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != absl::string_view::npos;
}

}  // namespace

bool IsTraceParent(absl::string_view value) {
  return value.size() == 55 && value.substr(0, 3) == "00-" &&
         IsId(value.substr(3, 32)) && value[35] == '-' &&
         IsId(value.substr(36, 16)) && value[52] == '-' &&
         IsHex(value.substr(53));
}

std::string TraceId(absl::string_view trace_parent) {
  return static_cast<std::string>(trace_parent.substr(3, 32));
}

}  // namespace attention::server
