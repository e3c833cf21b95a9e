#ifndef ATTENTION_SERVER_WIRE_TENSOR_BYTES_H_
#define ATTENTION_SERVER_WIRE_TENSOR_BYTES_H_

#include <google/protobuf/io/coded_stream.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/pinned_reserve.h"
#include "core/worker_pool.h"
#include "server/memory/aligned_buffer.h"
#include "server/memory/received_slices.h"
#include "server/wire/slice_stream.h"

namespace attention::server {

/// The elements of one tensor of a request, and what keeps them: a buffer or a
/// block of pinned memory that they are gathered into, or the received slice
/// that they lie in. Movable; the bytes stay where they are.
class TensorBytes {
 public:
  /// Bytes of a received slice that belong into a buffer.
  struct Piece {
    ReceivedSlice slice;
    absl::Span<const std::byte> bytes;  // in the slice
    std::byte* to;
  };

  TensorBytes() = default;
  /// `pieces` are what is not in the buffer yet.
  explicit TensorBytes(AlignedBuffer buffer, std::vector<Piece> pieces = {})
      : bytes_(buffer.bytes()),
        buffer_(std::move(buffer)),
        pieces_(std::move(pieces)) {}
  /// The same in `size` bytes of a PinnedReserve.
  TensorBytes(std::shared_ptr<std::byte> pinned, int64_t size,
              std::vector<Piece> pieces)
      : bytes_(pinned.get(), static_cast<size_t>(size)),
        pinned_(std::move(pinned)),
        pieces_(std::move(pieces)) {}
  /// `bytes` lie in `slice`, which has no less than kLeastBytesInPlace: gRPC
  /// keeps the bytes of tiny slices within the slice itself, and they would
  /// move with it.
  TensorBytes(ReceivedSlice slice, absl::Span<const std::byte> bytes)
      : bytes_(bytes), slice_(std::move(slice)) {}

  /// Where the elements are; not to be read before they are gathered().
  absl::Span<const std::byte> bytes() const { return bytes_; }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }

  bool gathered() const { return pieces_.empty(); }
  /// Copies what is not in its place yet and lets go of its slices.
  void Gather();

 private:
  friend void GatherAll(absl::Span<TensorBytes* const> tensors,
                        WorkerPool* workers);

  absl::Span<const std::byte> bytes_;
  AlignedBuffer buffer_;
  std::shared_ptr<std::byte> pinned_;
  ReceivedSlice slice_;
  std::vector<Piece> pieces_;
};

/// Gathers those that are not gathered() yet, on all workers, or on the calling
/// thread where `workers` is null.
void GatherAll(absl::Span<TensorBytes* const> tensors, WorkerPool* workers);

/// Tensors smaller than this are copied in any case: it costs less than to keep
/// the slice around them.
inline constexpr int64_t kLeastBytesInPlace = 16 << 10;

/// Tensors of at least so many bytes are gathered later, by as many threads as
/// are free then.
inline constexpr int64_t kLeastBytesGatheredLater = 256 << 10;

/// Reads the next `size` >= 0 bytes of `in`, which reads `stream`.
///
/// They stay where they lie if one slice holds all of them, they
/// are at least kLeastBytesInPlace and a quarter of that slice: so a tensor
/// keeps at most four times its bytes. Otherwise they belong into a buffer:
/// from kLeastBytesGatheredLater on they are not gathered() yet, and belong
/// into `pinned` where that has room; below, each slice is released as it is
/// read.
///
/// INVALID_ARGUMENT where fewer bytes are left, before memory is taken for
/// them if `in` has a limit; RESOURCE_EXHAUSTED where there is no memory.
absl::StatusOr<TensorBytes> ReadTensorBytes(
    const SliceInputStream& stream, google::protobuf::io::CodedInputStream& in,
    int size, const PinnedReserve& pinned = {});

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_TENSOR_BYTES_H_
