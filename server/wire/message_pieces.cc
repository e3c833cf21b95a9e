#include "server/wire/message_pieces.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

namespace attention::server {

namespace pb = google::protobuf;
using pb::internal::WireFormatLite;

namespace {

constexpr size_t kMostVarint32Bytes = 5;
constexpr size_t kMostVarint64Bytes = 10;

}  // namespace

std::string FieldHeader(int field_number, int64_t length) {
  using Out = pb::io::CodedOutputStream;
  uint8_t bytes[kMostVarint32Bytes + kMostVarint64Bytes];
  uint8_t* end = Out::WriteTagToArray(
      WireFormatLite::MakeTag(field_number,
                              WireFormatLite::WIRETYPE_LENGTH_DELIMITED),
      bytes);
  end = Out::WriteVarint64ToArray(static_cast<uint64_t>(length), end);
  return {bytes, end};
}

grpc::Slice ToSlice(AlignedBuffer buffer) {
  const auto size = static_cast<size_t>(buffer.size());
  std::byte* bytes = buffer.Release();
  return {bytes, size, &AlignedBuffer::Free, bytes};
}

ReplyBuffer ToReplyBuffer(const std::vector<grpc::Slice>& slices) {
  return {slices.data(), slices.size()};
}

}  // namespace attention::server
