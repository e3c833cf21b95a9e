#ifndef ATTENTION_SERVER_HTTP_PROTOCOL_JSON_ELEMENTS_H_
#define ATTENTION_SERVER_HTTP_PROTOCOL_JSON_ELEMENTS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/datatype.h"
#include "server/memory/aligned_buffer.h"
#include "server/memory/hold_bytes.h"

namespace attention::server {

/// Reads an array of JSON, `text` from its bracket to its bracket, as the
/// elements of a tensor: flat, or nested as `shape` is. Each number is rounded
/// once, from its digits to `type`; integers are exact. None has more than 4096
/// characters. FP32 and FP64 take the
/// strings "NaN", "Infinity" and "-Infinity", as protobuf's JSON does. FP16 and
/// BF16 have no form in JSON, here as in the protocol's other servers.
///
/// `hold` is asked for the tensor's memory before it is taken, and for nothing
/// each MiB of text; no more is taken than the text has elements.
/// INVALID_ARGUMENT says which element is wrong, or how the array differs from
/// the shape.
absl::StatusOr<AlignedBuffer> ReadJsonElements(absl::string_view text,
                                               DataType type,
                                               absl::Span<const int64_t> shape,
                                               HoldBytes hold);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PROTOCOL_JSON_ELEMENTS_H_
