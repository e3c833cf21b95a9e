#include "server/wire/tensor_bytes.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"

namespace attention::server {
namespace {

namespace pb = google::protobuf;

// Of a piece that is worth keeping a slice for: less is copied at once.
constexpr int kLeastPiece = 4 << 10;
// What a worker copies in one go.
constexpr size_t kPartBytes = 1 << 20;

void CopyAndLetGo(absl::Span<TensorBytes::Piece> pieces) {
  std::vector<grpc::Slice> read;
  read.reserve(pieces.size());
  for (TensorBytes::Piece& piece : pieces) {
    std::memcpy(piece.to, piece.bytes.data(), piece.bytes.size());
    read.push_back(piece.slice.Take());
  }
  ReleaseSlices(absl::MakeSpan(read));
}

// Parts of some pieces that follow one another, each of about kPartBytes.
std::vector<absl::Span<TensorBytes::Piece>> PartsOf(
    absl::Span<TensorBytes::Piece> pieces) {
  std::vector<absl::Span<TensorBytes::Piece>> parts;
  while (!pieces.empty()) {
    size_t count = 0;
    for (size_t bytes = 0; count < pieces.size() && bytes < kPartBytes;
         ++count) {
      bytes += pieces[count].bytes.size();
    }
    parts.push_back(pieces.first(count));
    pieces.remove_prefix(count);
  }
  return parts;
}

// Notes where the next `size` bytes of `in` lie, which are there.
std::vector<TensorBytes::Piece> TakePieces(const SliceInputStream& stream,
                                           pb::io::CodedInputStream& in,
                                           int size, std::byte* to) {
  std::vector<TensorBytes::Piece> pieces;
  while (size > 0) {
    const void* data = nullptr;
    int here = 0;  // bytes of the current slice that are not read yet
    if (!in.GetDirectBufferPointer(&data, &here)) break;
    const int count = std::min(here, size);
    const absl::Span<const std::byte> bytes(static_cast<const std::byte*>(data),
                                            static_cast<size_t>(count));
    if (count < kLeastPiece) {
      std::memcpy(to, data, bytes.size());
    } else {
      pieces.push_back({ReceivedSlice(stream.current()), bytes, to});
    }
    in.Skip(count);
    to += count;
    size -= count;
  }
  return pieces;
}

bool WorthKeeping(const grpc::Slice& slice, int64_t size) {
  return size >= kLeastBytesInPlace &&
         size >= static_cast<int64_t>(slice.size()) / 4;
}

}  // namespace

void TensorBytes::Gather() {
  for (const auto part : PartsOf(absl::MakeSpan(pieces_))) CopyAndLetGo(part);
  pieces_.clear();
}

void GatherAll(absl::Span<TensorBytes* const> tensors, WorkerPool* workers) {
  if (workers == nullptr) {
    for (TensorBytes* tensor : tensors) tensor->Gather();
    return;
  }
  // Parts of pieces that follow one another in a tensor.
  std::vector<absl::Span<TensorBytes::Piece>> parts;
  for (TensorBytes* tensor : tensors) {
    const auto more = PartsOf(absl::MakeSpan(tensor->pieces_));
    parts.insert(parts.end(), more.begin(), more.end());
  }
  workers->ParallelFor(static_cast<int64_t>(parts.size()), {},
                       [&parts](int64_t part) {
                         CopyAndLetGo(parts[static_cast<size_t>(part)]);
                       });
  for (TensorBytes* tensor : tensors) tensor->pieces_.clear();
}

absl::StatusOr<TensorBytes> ReadTensorBytes(
    const SliceInputStream& stream, google::protobuf::io::CodedInputStream& in,
    int size, const PinnedReserve& pinned) {
  const int left = in.BytesUntilLimit();
  if (left >= 0 && left < size) {
    return absl::InvalidArgumentError("the tensor's bytes are cut");
  }
  const void* data = nullptr;
  int here = 0;  // bytes of the current slice that are not read yet
  if (size >= kLeastBytesInPlace && in.GetDirectBufferPointer(&data, &here) &&
      here >= size && WorthKeeping(stream.current(), size)) {
    TensorBytes kept(
        ReceivedSlice(stream.current()),
        {static_cast<const std::byte*>(data), static_cast<size_t>(size)});
    in.Skip(size);
    return kept;
  }
  // Without a limit nobody has said yet that the bytes are there.
  const bool is_gathered_later = left >= 0 && size >= kLeastBytesGatheredLater;
  if (is_gathered_later) {
    if (std::shared_ptr<std::byte> block = pinned.Take(size)) {
      std::byte* const to = block.get();
      return TensorBytes(std::move(block), size,
                         TakePieces(stream, in, size, to));
    }
  }
  absl::StatusOr<AlignedBuffer> buffer = AlignedBuffer::Create(size);
  if (!buffer.ok()) return buffer.status();
  if (is_gathered_later) {
    std::byte* const to = buffer->data();
    return TensorBytes(*std::move(buffer), TakePieces(stream, in, size, to));
  }
  if (!in.ReadRaw(buffer->data(), size)) {
    return absl::InvalidArgumentError("the tensor's bytes are cut");
  }
  return TensorBytes(*std::move(buffer));
}

}  // namespace attention::server
