#ifndef ATTENTION_SERVER_WIRE_TENSOR_BYTES_H_
#define ATTENTION_SERVER_WIRE_TENSOR_BYTES_H_

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/wire/aligned_buffer.h"
#include "server/wire/slice_stream.h"

namespace attention::server {

/// The elements of one tensor of a request, and what keeps them: a buffer that
/// they were gathered into, or the received slice that they lie in. Movable;
/// the bytes stay where they are.
class TensorBytes {
 public:
  TensorBytes() = default;
  explicit TensorBytes(AlignedBuffer buffer)
      : bytes_(buffer.bytes()), buffer_(std::move(buffer)) {}
  /// `bytes` lie in `slice`, which has no less than kLeastBytesInPlace: gRPC
  /// keeps the bytes of tiny slices within the slice itself, and they would
  /// move with it.
  TensorBytes(grpc::Slice slice, absl::Span<const std::byte> bytes)
      : bytes_(bytes), slice_(std::move(slice)) {}

  absl::Span<const std::byte> bytes() const { return bytes_; }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }

 private:
  absl::Span<const std::byte> bytes_;
  AlignedBuffer buffer_;
  grpc::Slice slice_;
};

/// Tensors smaller than this are copied in any case: it costs less than to keep
/// the slice around them.
inline constexpr int64_t kLeastBytesInPlace = 16 << 10;

enum class TensorPlace : uint8_t {
  kAnywhere,  // where they lie, at any alignment, or in a buffer
  kBuffer,    // in a buffer of their own, aligned to 64 bytes
};

/// Reads the next `size` >= 0 bytes of `in`, which reads `stream`.
///
/// With kAnywhere they stay where they lie if one slice holds all of them, they
/// are at least kLeastBytesInPlace and a quarter of that slice: so a tensor
/// keeps at most four times its bytes. Otherwise they are gathered into a
/// buffer, each slice released as it is read.
///
/// INVALID_ARGUMENT where fewer bytes are left, before memory is taken for
/// them if `in` has a limit; RESOURCE_EXHAUSTED where there is no memory.
absl::StatusOr<TensorBytes> ReadTensorBytes(
    const SliceInputStream& stream, google::protobuf::io::CodedInputStream& in,
    int size, TensorPlace place = TensorPlace::kAnywhere);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_TENSOR_BYTES_H_
