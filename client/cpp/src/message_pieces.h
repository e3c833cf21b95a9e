#ifndef ATTENTION_CLIENT_MESSAGE_PIECES_H_
#define ATTENTION_CLIENT_MESSAGE_PIECES_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/tensor.h"

namespace attention::client {

/// A serialized message, or a part of one, as pieces: text of our own, and the
/// bytes of large tensors where they lie.
class MessagePieces {
 public:
  /// Fields that are serialized already.
  void Append(absl::string_view text);

  /// A field of this number that holds `inner`.
  void Append(int field_number, MessagePieces inner);

  /// A field of this number that holds the tensor, whose type must have a name
  /// on the wire.
  void Append(int field_number, const Tensor& tensor);
  void Append(int field_number, const std::optional<Tensor>& tensor) {
    if (tensor) Append(field_number, *tensor);
  }

  /// The message. It keeps the tensors' bytes alive as long as gRPC needs them.
  grpc::ByteBuffer Build() &&;

 private:
  struct Shared {
    std::string text_before;
    grpc::Slice bytes;
  };

  void AppendHeader(int field_number, int64_t length);

  std::vector<Shared> shared_;
  std::string text_;  // what follows them
  int64_t bytes_ = 0;
};

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_MESSAGE_PIECES_H_
