#include "server/wire/message_pieces.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

namespace attention::server {

namespace pb = google::protobuf;
using pb::internal::WireFormatLite;

namespace {

constexpr size_t kMostVarint32Bytes = 5;
constexpr size_t kMostVarint64Bytes = 10;

// A tag, and a number behind it: a length or a value.
void AppendHeader(int field_number, WireFormatLite::WireType type,
                  uint64_t number, std::string& out) {
  using Out = pb::io::CodedOutputStream;
  uint8_t bytes[kMostVarint32Bytes + kMostVarint64Bytes];
  uint8_t* end =
      Out::WriteTagToArray(WireFormatLite::MakeTag(field_number, type), bytes);
  end = Out::WriteVarint64ToArray(number, end);
  out.append(reinterpret_cast<const char*>(bytes),
             static_cast<size_t>(end - bytes));
}

}  // namespace

std::string FieldHeader(int field_number, int64_t length) {
  std::string header;
  AppendFieldHeader(field_number, length, header);
  return header;
}

void AppendFieldHeader(int field_number, int64_t length, std::string& out) {
  AppendHeader(field_number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED,
               static_cast<uint64_t>(length), out);
}

void AppendVarint(uint64_t value, std::string& out) {
  if (value < 0x80) {  // nearly all of them
    out.push_back(static_cast<char>(value));
    return;
  }
  uint8_t bytes[kMostVarint64Bytes];
  const uint8_t* const end =
      pb::io::CodedOutputStream::WriteVarint64ToArray(value, bytes);
  out.append(reinterpret_cast<const char*>(bytes),
             static_cast<size_t>(end - bytes));
}

void AppendNumber(int field_number, uint64_t value, std::string& out) {
  if (value == 0) return;
  AppendHeader(field_number, WireFormatLite::WIRETYPE_VARINT, value, out);
}

void AppendBytes(int field_number, absl::string_view value, std::string& out) {
  if (value.empty()) return;
  AppendFieldHeader(field_number, static_cast<int64_t>(value.size()), out);
  out.append(value.data(), value.size());
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
