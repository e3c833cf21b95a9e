#ifndef ATTENTION_CLIENT_REPLY_DECODER_H_
#define ATTENTION_CLIENT_REPLY_DECODER_H_

#include <grpcpp/support/byte_buffer.h>

#include <optional>

#include "absl/status/statusor.h"
#include "attention/v1/attention.pb.h"
#include "attention_client/client.h"

/// Replies from the bytes that came: a tensor's are copied once, to where the
/// caller gets them. Fields that are not known are passed over.
namespace attention::client {

/// A tensor of a reply, before its bytes are held against its shape.
struct ReplyTensor {
  v1::Tensor description;  // without data
  Tensor bytes;
};

/// An AttendResponse apart from its tensors, and those that it has.
struct Reply {
  v1::AttendResponse fields;
  std::optional<ReplyTensor> output;
  std::optional<ReplyTensor> weights;
  std::optional<ReplyTensor> lse;
  std::optional<ReplyTensor> top_k_indices;
  std::optional<ReplyTensor> top_k_weights;
  std::optional<ReplyTensor> key_weights;
  std::optional<ReplyTensor> scores;
};

/// An AttendStreamResponse apart from its result, and that.
struct StreamReply {
  v1::AttendStreamResponse fields;
  std::optional<Reply> result;
};

/// INTERNAL where the bytes are no such message, RESOURCE_EXHAUSTED where there
/// is no memory for a tensor. `message` is read once.
absl::StatusOr<Reply> DecodeReply(grpc::ByteBuffer& message);
absl::StatusOr<StreamReply> DecodeStreamReply(grpc::ByteBuffer& message);

/// INTERNAL, naming the field, where a tensor of the reply is missing although
/// `request` asked for it, or does not fit its own shape.
absl::StatusOr<AttendResult> ToResult(const AttendRequest& request,
                                      Reply reply);

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_REPLY_DECODER_H_
