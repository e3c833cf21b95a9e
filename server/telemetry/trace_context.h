#ifndef ATTENTION_SERVER_TELEMETRY_TRACE_CONTEXT_H_
#define ATTENTION_SERVER_TELEMETRY_TRACE_CONTEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace attention::server {

/// The header, or metadata, that a trace's id comes in (W3C Trace Context).
inline constexpr char kTraceParent[] = "traceparent";

/// Whether `value` is one of version 00: "00-TRACE-SPAN-FLAGS", 32, 16 and 2
/// lower-case hexadecimal digits, neither of the ids all zeros. Anything else
/// is to be passed over, the standard says.
bool IsTraceParent(absl::string_view value);

/// The trace's own id, 32 digits, of such a value.
std::string TraceId(absl::string_view trace_parent);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_TRACE_CONTEXT_H_
