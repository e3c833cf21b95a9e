#ifndef ATTENTION_SERVER_WIRE_MESSAGE_PIECES_H_
#define ATTENTION_SERVER_WIRE_MESSAGE_PIECES_H_

#include <grpcpp/support/slice.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/memory/aligned_buffer.h"
#include "server/memory/reply_buffer.h"

/// What serialized messages are put together from where a tensor's memory
/// becomes part of the message.
namespace attention::server {

/// The tag and length of a length-delimited field.
std::string FieldHeader(int field_number, int64_t length);
void AppendFieldHeader(int field_number, int64_t length, std::string& out);

/// A field as protobuf serializes it: nothing where it is 0 or empty. For
/// messages of a few fields, which cost several times as much to fill in and
/// serialize as to write.
void AppendNumber(int field_number, uint64_t value, std::string& out);
void AppendBytes(int field_number, absl::string_view value, std::string& out);

/// An element of a packed field, also where it is 0.
void AppendVarint(uint64_t value, std::string& out);

/// A slice that owns the buffer's memory.
grpc::Slice ToSlice(AlignedBuffer buffer);

ReplyBuffer ToReplyBuffer(const std::vector<grpc::Slice>& slices);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_MESSAGE_PIECES_H_
