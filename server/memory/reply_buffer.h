#ifndef ATTENTION_SERVER_MEMORY_REPLY_BUFFER_H_
#define ATTENTION_SERVER_MEMORY_REPLY_BUFFER_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstddef>

namespace attention::server {

/// A serialized reply. gRPC 1.51's ByteBuffer has no move: what would be one
/// copies its references and later releases them, some 600 instructions each
/// time.
class ReplyBuffer {
 public:
  ReplyBuffer() = default;
  ReplyBuffer(const grpc::Slice* slices, size_t count)
      : bytes_(slices, count) {}
  ReplyBuffer(ReplyBuffer&& other) noexcept { bytes_.Swap(&other.bytes_); }
  ReplyBuffer& operator=(ReplyBuffer&& other) noexcept {
    bytes_.Swap(&other.bytes_);
    return *this;
  }

  grpc::ByteBuffer& bytes() { return bytes_; }
  const grpc::ByteBuffer& bytes() const { return bytes_; }

 private:
  grpc::ByteBuffer bytes_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MEMORY_REPLY_BUFFER_H_
