#ifndef ATTENTION_SERVER_HTTP_PROTOCOL_JSON_INFER_WIRE_H_
#define ATTENTION_SERVER_HTTP_PROTOCOL_JSON_INFER_WIRE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/http/protocol/json_text.h"
#include "server/memory/received_slices.h"
#include "server/wire/infer_wire.h"

namespace attention::server {

/// The header that says how long the JSON is where elements follow it.
inline constexpr char kJsonLengthHeader[] = "Inference-Header-Content-Length";

/// What is known of an inference request over HTTP beside its body.
struct JsonInferHead {
  std::string model;
  std::string version;  // "" for the latest
  /// kJsonLengthHeader as it came; none where there is no such header.
  std::optional<std::string> json_bytes;
};

/// What is to be known of its reply beside the bytes.
struct JsonInferReply {
  /// How long the JSON is; none where nothing follows it.
  std::optional<size_t> json_bytes;
};

/// An inference request over HTTP: JSON, with elements in it or behind it. The
/// rest is what gRPC's message says; what the reply has is the same, too.
class JsonInferWire final : public InferWire {
 public:
  /// `models` and `regions` outlive it.
  JsonInferWire(const ModelTable& models, SharedMemoryAccess regions,
                JsonInferHead head, std::shared_ptr<JsonInferReply> reply)
      : InferWire(models, regions, /*on_stream=*/false),
        head_(std::move(head)),
        reply_(std::move(reply)) {}

  /// The body has one slice, or none; elements behind the JSON are used where
  /// they lie. `hold` is asked for those that are read from JSON.
  absl::StatusOr<AttentionRequest> Decode(ReceivedMessage body,
                                          HoldBytes hold) override;
  int64_t BytesBeside(int64_t element_bytes) const override;
  /// Of the JSON alone; where it is short, that of a message over gRPC with as
  /// many bytes: elements behind it are used where they lie.
  Work DecodingWork(int64_t body_bytes) const override;

 protected:
  ReplyBuffer Assemble(const inference::ModelInferResponse& fields,
                       std::vector<grpc::Slice> elements) override;

 private:
  absl::Status ReadFlags();
  absl::StatusOr<size_t> JsonBytes(size_t body_bytes) const;
  bool IsBinary(const std::string& output) const;
  void WriteOutput(
      const inference::ModelInferResponse::InferOutputTensor& output,
      const grpc::Slice& elements, JsonText& text) const;

  const JsonInferHead head_;
  const std::shared_ptr<JsonInferReply> reply_;
  // Of the request, once it is decoded.
  ReceivedSlice body_;       // that elements lie in; none where there are none
  bool all_binary_ = false;  // unless an output says something else
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PROTOCOL_JSON_INFER_WIRE_H_
