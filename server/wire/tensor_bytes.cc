#include "server/wire/tensor_bytes.h"

#include "absl/status/status.h"

namespace attention::server {
namespace {

bool WorthKeeping(const grpc::Slice& slice, int64_t size) {
  return size >= kLeastBytesInPlace &&
         size >= static_cast<int64_t>(slice.size()) / 4;
}

}  // namespace

absl::StatusOr<TensorBytes> ReadTensorBytes(
    const SliceInputStream& stream, google::protobuf::io::CodedInputStream& in,
    int size, TensorPlace place) {
  const int left = in.BytesUntilLimit();
  if (left >= 0 && left < size) {
    return absl::InvalidArgumentError("the tensor's bytes are cut");
  }
  const void* data = nullptr;
  int here = 0;  // bytes of the current slice that are not read yet
  if (place == TensorPlace::kAnywhere && size >= kLeastBytesInPlace &&
      in.GetDirectBufferPointer(&data, &here) && here >= size &&
      WorthKeeping(stream.current(), size)) {
    TensorBytes kept(stream.current(), {static_cast<const std::byte*>(data),
                                        static_cast<size_t>(size)});
    in.Skip(size);
    return kept;
  }
  absl::StatusOr<AlignedBuffer> buffer = AlignedBuffer::Create(size);
  if (!buffer.ok()) return buffer.status();
  if (!in.ReadRaw(buffer->data(), size)) {
    return absl::InvalidArgumentError("the tensor's bytes are cut");
  }
  return TensorBytes(*std::move(buffer));
}

}  // namespace attention::server
