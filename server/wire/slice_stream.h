#ifndef ATTENTION_SERVER_WIRE_SLICE_STREAM_H_
#define ATTENTION_SERVER_WIRE_SLICE_STREAM_H_

#include <google/protobuf/io/zero_copy_stream.h>

#include <cstdint>
#include <utility>

#include "server/memory/received_slices.h"
namespace attention::server {

/// Reads a message's slices in order and lets go of each one when the next is
/// asked for: a large message is then never held twice, once as it came and
/// once gathered.
class SliceInputStream final
    : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit SliceInputStream(ReceivedMessage message)
      : message_(std::move(message)), total_bytes_(message_.bytes()) {}

  /// Bytes of all slices together.
  int64_t TotalBytes() const { return total_bytes_; }

  /// The slice that the bytes of the last Next() lie in, which gave some.
  const grpc::Slice& current() const { return message_.slices()[next_]; }

  bool Next(const void** data, int* size) override;
  void BackUp(int count) override;
  bool Skip(int count) override;
  int64_t ByteCount() const override { return byte_count_; }

 private:
  ReceivedMessage message_;
  int64_t total_bytes_;
  size_t next_ = 0;      // the slice that Next() hands out
  size_t position_ = 0;  // where in it
  int64_t byte_count_ = 0;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_SLICE_STREAM_H_
