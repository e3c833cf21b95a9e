#ifndef ATTENTION_CLIENT_REQUEST_ENCODER_H_
#define ATTENTION_CLIENT_REQUEST_ENCODER_H_

#include <grpcpp/support/byte_buffer.h>

#include <optional>
#include <string>

#include "attention_client/client.h"

namespace attention::client {

/// Keys and values that are sent from where they lie.
struct RowsToSend {
  const Tensor& key;
  const Tensor& value;
  const std::optional<Tensor>& key_scale;
  const std::optional<Tensor>& value_scale;
};

/// The serialized v1::AttendRequest of a request that CheckSendable() let pass,
/// with `id` in place of its own. Large tensors are not copied: the message
/// shares their bytes, which must not change until it was sent, and keeps them
/// alive as long as gRPC needs them.
grpc::ByteBuffer EncodeRequest(const AttendRequest& request,
                               const std::string& id);

/// Likewise the serialized v1::AppendRequest of tensors that CheckSendable()
/// let pass.
grpc::ByteBuffer EncodeAppend(const SequenceLayer& to, const RowsToSend& rows);

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_REQUEST_ENCODER_H_
