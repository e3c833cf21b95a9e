#ifndef ATTENTION_SERVER_SERVICES_SMALL_MESSAGE_H_
#define ATTENTION_SERVER_SERVICES_SMALL_MESSAGE_H_

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

/// Messages of methods that carry no tensors. gRPC would parse them however
/// large they are, before anybody looks whose they are: 2 bytes can take 16.
namespace attention::server {

/// As of bodies over HTTP.
inline constexpr size_t kMostSmallMessageBytes = 64 << 10;

/// RESOURCE_EXHAUSTED where it takes more than `most` bytes, INVALID_ARGUMENT
/// where they are no such message.
template <typename Message>
absl::StatusOr<Message> ReadSmallMessage(const grpc::ByteBuffer& bytes,
                                         size_t most = kMostSmallMessageBytes) {
  const std::string& name = Message::descriptor()->full_name();
  if (bytes.Length() > most) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the ", name, " takes ", bytes.Length(),
                     " bytes (expected: at most ", most, ")"));
  }
  grpc::ByteBuffer shared = bytes;  // parsing empties it
  Message message;
  if (grpc::SerializationTraits<Message>::Deserialize(&shared, &message).ok()) {
    return message;
  }
  // The parser does not say where it stopped.
  return absl::InvalidArgumentError(absl::StrCat(
      "the request is no ", name, " (expected one whose texts are UTF-8)"));
}

template <typename Message>
void WriteMessage(const Message& message, grpc::ByteBuffer& bytes) {
  bool own = false;
  grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own);
}

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_SMALL_MESSAGE_H_
