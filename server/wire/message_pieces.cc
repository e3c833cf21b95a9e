#include "server/wire/message_pieces.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

namespace attention::server {

namespace pb = google::protobuf;
using pb::internal::WireFormatLite;

std::string FieldHeader(int field_number, int64_t length) {
  std::string header;
  pb::io::StringOutputStream stream(&header);
  pb::io::CodedOutputStream out(&stream);
  out.WriteTag(WireFormatLite::MakeTag(
      field_number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
  out.WriteVarint64(static_cast<uint64_t>(length));
  out.Trim();
  return header;
}

grpc::Slice ToSlice(AlignedBuffer buffer) {
  const auto size = static_cast<size_t>(buffer.size());
  std::byte* bytes = buffer.Release();
  return {bytes, size, &AlignedBuffer::Free, bytes};
}

grpc::ByteBuffer ToByteBuffer(const std::vector<grpc::Slice>& slices) {
  return {slices.data(), slices.size()};
}

}  // namespace attention::server
