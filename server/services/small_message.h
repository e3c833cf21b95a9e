#ifndef ATTENTION_SERVER_SERVICES_SMALL_MESSAGE_H_
#define ATTENTION_SERVER_SERVICES_SMALL_MESSAGE_H_

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/memory/received_slices.h"
#include "server/wire/message_splitter.h"

/// Messages of methods that carry no tensors. gRPC would parse them however
/// large they are, before anybody looks whose they are: 2 bytes can take 16.
namespace attention::server {

/// As of bodies over HTTP.
inline constexpr size_t kMostSmallMessageBytes = 64 << 10;

/// RESOURCE_EXHAUSTED where a `Message` takes more than `most` bytes.
template <typename Message>
absl::Status CheckSmall(const grpc::ByteBuffer& bytes, size_t most) {
  if (bytes.Length() <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the ", Message::descriptor()->full_name(), " takes ",
                   bytes.Length(), " bytes (expected: at most ", most, ")"));
}

/// Of the Open Inference Protocol's methods other than inference, which skip
/// unknown fields. Errors as
/// CheckSmall(), INVALID_ARGUMENT where the bytes are no such message.
template <typename Message>
absl::StatusOr<Message> ReadSmallMessage(const grpc::ByteBuffer& bytes) {
  absl::Status small = CheckSmall<Message>(bytes, kMostSmallMessageBytes);
  if (!small.ok()) return small;
  grpc::ByteBuffer shared = bytes;  // parsing empties it
  Message message;
  if (grpc::SerializationTraits<Message>::Deserialize(&shared, &message).ok()) {
    return message;
  }
  // The parser does not say where it stopped.
  return absl::InvalidArgumentError(
      absl::StrCat("the request is no ", Message::descriptor()->full_name(),
                   " (expected one whose texts are UTF-8)"));
}

/// Of attention.v1, which refuses unknown fields. Errors as CheckSmall() and
/// SplitMessage().
template <typename Message>
absl::StatusOr<Message> ReadStrictMessage(
    const grpc::ByteBuffer& bytes, size_t most = kMostSmallMessageBytes) {
  static const auto* const rules =
      new SplitRules(*Message::descriptor(), /*elements=*/{});
  absl::Status small = CheckSmall<Message>(bytes, most);
  if (!small.ok()) return small;
  grpc::ByteBuffer shared = bytes;  // its contents are taken
  Message message;
  const auto split = SplitMessage(ReceivedMessage(shared), *rules, message);
  if (!split.ok()) return split.status();
  return message;
}

template <typename Message>
void WriteMessage(const Message& message, grpc::ByteBuffer& bytes) {
  bool own = false;
  grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own);
}

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_SMALL_MESSAGE_H_
