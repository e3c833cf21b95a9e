#ifndef ATTENTION_SERVER_WIRE_MESSAGE_PIECES_H_
#define ATTENTION_SERVER_WIRE_MESSAGE_PIECES_H_

#include <grpcpp/support/slice.h>

#include <cstdint>
#include <string>
#include <vector>

#include "server/memory/aligned_buffer.h"
#include "server/memory/reply_buffer.h"

/// What serialized messages are put together from where a tensor's memory
/// becomes part of the message.
namespace attention::server {

/// The tag and length of a length-delimited field.
std::string FieldHeader(int field_number, int64_t length);

/// A slice that owns the buffer's memory.
grpc::Slice ToSlice(AlignedBuffer buffer);

ReplyBuffer ToReplyBuffer(const std::vector<grpc::Slice>& slices);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_MESSAGE_PIECES_H_
