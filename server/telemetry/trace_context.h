#ifndef ATTENTION_SERVER_TELEMETRY_TRACE_CONTEXT_H_
#define ATTENTION_SERVER_TELEMETRY_TRACE_CONTEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace attention::server {

/// The header, or metadata, that a trace's id comes in (W3C Trace Context).
inline constexpr char kTraceParent[] = "traceparent";

/// What `value` says in version 00: "00-TRACE-SPAN-FLAGS", 32, 16 and 2
/// lower-case hexadecimal digits, neither of the ids all zeros. A later version
/// begins alike, and what it has besides is left out, as the standard says; so
/// are flags other than "sampled" and "random".
/// Empty for anything else, which is to be passed over.
std::string ReadTraceParent(absl::string_view value);

/// The trace's own id, 32 digits, of what was read.
std::string TraceId(absl::string_view trace_parent);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_TRACE_CONTEXT_H_
