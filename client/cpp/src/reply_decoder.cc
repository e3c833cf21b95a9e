#include "client/cpp/src/reply_decoder.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <chrono>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/src/wire_tensor.h"

namespace attention::client {
namespace {

namespace pb = google::protobuf;
using pb::internal::WireFormatLite;

absl::Status NotAReply() {
  return absl::InternalError("reply: the bytes are not a message");
}

// Takes the length-delimited field of this number, of `size` bytes that are
// there; false where it is none of its own, and nothing was read.
using TakeField =
    absl::FunctionRef<absl::StatusOr<bool>(int field_number, int size)>;

// Reads up to the current limit: what `take` does not take is copied to a
// message of its own, which `fields` is parsed from.
absl::Status ReadFields(pb::io::CodedInputStream& in, pb::MessageLite& fields,
                        TakeField take) {
  std::string rest;
  pb::io::StringOutputStream rest_stream(&rest);
  pb::io::CodedOutputStream out(&rest_stream);
  while (const uint32_t tag = in.ReadTag()) {
    if (WireFormatLite::GetTagWireType(tag) ==
        WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      int size = 0;
      if (!in.ReadVarintSizeAsInt(&size) || size > in.BytesUntilLimit()) {
        return NotAReply();
      }
      const absl::StatusOr<bool> taken =
          take(WireFormatLite::GetTagFieldNumber(tag), size);
      if (!taken.ok()) return taken.status();
      if (*taken) continue;
      std::string content;
      if (!in.ReadString(&content, size)) return NotAReply();
      out.WriteTag(tag);
      out.WriteVarint32(static_cast<uint32_t>(size));
      out.WriteString(content);
    } else if (!WireFormatLite::SkipField(&in, tag, &out)) {
      return NotAReply();
    }
  }
  out.Trim();
  return in.ConsumedEntireMessage() && fields.ParseFromString(rest)
             ? absl::OkStatus()
             : NotAReply();
}

// Calls `read`, which sees the next `size` bytes alone.
absl::StatusOr<bool> Within(pb::io::CodedInputStream& in, int size,
                            absl::FunctionRef<absl::Status()> read) {
  const auto limit = in.PushLimit(size);
  if (absl::Status status = read(); !status.ok()) return status;
  in.PopLimit(limit);
  return true;
}

absl::Status ReadTensor(pb::io::CodedInputStream& in, ReplyTensor& tensor) {
  return ReadFields(in, tensor.description,
                    [&](int field_number, int size) -> absl::StatusOr<bool> {
                      if (field_number != v1::Tensor::kDataFieldNumber) {
                        return false;
                      }
                      absl::StatusOr<Tensor> bytes =
                          Tensor::CreateUninitialized(DataType::kUint8, {size});
                      if (!bytes.ok()) return bytes.status();
                      if (size > 0 && !in.ReadRaw(bytes->data(), size)) {
                        return NotAReply();
                      }
                      tensor.bytes = *std::move(bytes);
                      return true;
                    });
}

absl::Status ReadReply(pb::io::CodedInputStream& in, Reply& reply) {
  const auto tensor = [&](int field_number) -> std::optional<ReplyTensor>* {
    switch (field_number) {
      case v1::AttendResponse::kOutputFieldNumber:
        return &reply.output;
      case v1::AttendResponse::kWeightsFieldNumber:
        return &reply.weights;
      case v1::AttendResponse::kLseFieldNumber:
        return &reply.lse;
      case v1::AttendResponse::kTopKIndicesFieldNumber:
        return &reply.top_k_indices;
      case v1::AttendResponse::kTopKWeightsFieldNumber:
        return &reply.top_k_weights;
      case v1::AttendResponse::kKeyWeightsFieldNumber:
        return &reply.key_weights;
      case v1::AttendResponse::kScoresFieldNumber:
        return &reply.scores;
      default:
        return nullptr;
    }
  };
  return ReadFields(in, reply.fields,
                    [&](int field_number, int size) -> absl::StatusOr<bool> {
                      std::optional<ReplyTensor>* found = tensor(field_number);
                      if (found == nullptr) return false;
                      ReplyTensor& into = found->emplace();
                      return Within(in, size,
                                    [&] { return ReadTensor(in, into); });
                    });
}

// Opens `message` and calls `read` with all of it.
absl::Status ReadMessage(
    grpc::ByteBuffer& message,
    absl::FunctionRef<absl::Status(pb::io::CodedInputStream&)> read) {
  grpc::ProtoBufferReader stream(&message);
  if (!stream.status().ok()) return NotAReply();
  pb::io::CodedInputStream in(&stream);
  in.PushLimit(static_cast<int>(message.Length()));
  return read(in);
}

}  // namespace

absl::StatusOr<Reply> DecodeReply(grpc::ByteBuffer& message) {
  Reply reply;
  absl::Status status =
      ReadMessage(message, [&](auto& in) { return ReadReply(in, reply); });
  if (!status.ok()) return status;
  return reply;
}

absl::StatusOr<StreamReply> DecodeStreamReply(grpc::ByteBuffer& message) {
  StreamReply reply;
  absl::Status status = ReadMessage(message, [&](auto& in) {
    return ReadFields(
        in, reply.fields,
        [&](int field_number, int size) -> absl::StatusOr<bool> {
          if (field_number != v1::AttendStreamResponse::kResultFieldNumber) {
            return false;
          }
          Reply& result = reply.result.emplace();
          return Within(in, size, [&] { return ReadReply(in, result); });
        });
  });
  if (!status.ok()) return status;
  return reply;
}

absl::StatusOr<AttendResult> ToResult(const AttendRequest& request,
                                      Reply reply) {
  AttendResult result;
  absl::Status status;
  const auto take = [&](absl::string_view field,
                        std::optional<ReplyTensor>& from, Tensor& to) {
    if (!status.ok()) return;
    if (!from) {
      status = absl::InternalError(absl::StrCat("reply: ", field, ": missing"));
      return;
    }
    absl::StatusOr<Tensor> tensor =
        AsDescribed(field, from->description, std::move(from->bytes));
    status = tensor.status();
    if (tensor.ok()) to = *std::move(tensor);
  };
  take("output", reply.output, result.output);
  if (request.return_weights) {
    take("weights", reply.weights, result.weights.emplace());
  }
  if (request.return_lse) take("lse", reply.lse, result.lse.emplace());
  if (request.top_k) {
    take("top_k_indices", reply.top_k_indices, result.top_k_indices.emplace());
    take("top_k_weights", reply.top_k_weights, result.top_k_weights.emplace());
  }
  if (request.return_key_weights) {
    take("key_weights", reply.key_weights, result.key_weights.emplace());
  }
  if (request.scores) take("scores", reply.scores, result.scores.emplace());
  if (!status.ok()) return status;
  result.id = std::move(*reply.fields.mutable_id());
  result.backend = std::move(*reply.fields.mutable_backend());
  result.kernel = std::move(*reply.fields.mutable_kernel());
  result.queue_time = std::chrono::nanoseconds(reply.fields.queue_ns());
  result.compute_time = std::chrono::nanoseconds(reply.fields.compute_ns());
  return result;
}

}  // namespace attention::client
