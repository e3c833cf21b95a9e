#ifndef ATTENTION_SERVER_WIRE_TYPED_CONTENTS_H_
#define ATTENTION_SERVER_WIRE_TYPED_CONTENTS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/datatype.h"
#include "server/memory/aligned_buffer.h"
#include "server/memory/hold_bytes.h"
#include "server/wire/tensor_bytes.h"

namespace attention::server {

/// The elements of a serialized inference.InferTensorContents as the bytes of a
/// row-major tensor: `count` >= 0 elements of `type`. `pieces` are gathered and
/// make one message when put together; packed and unpacked elements may be
/// mixed, as protobuf has it.
///
/// INVALID_ARGUMENT, beginning with `input`, where the elements are not in the
/// field that the protocol has for the type (FP16 and BF16 have none), are not
/// `count`, or do not fit the type. Memory is taken for no more elements than
/// there are bytes in `pieces`, which is up to eight times as much, and `hold`
/// is asked for it before; then for 0 bytes with every MiB that is read.
absl::StatusOr<AlignedBuffer> ReadTypedContents(
    absl::string_view input, DataType type, int64_t count,
    absl::Span<TensorBytes* const> pieces, HoldBytes hold);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_TYPED_CONTENTS_H_
