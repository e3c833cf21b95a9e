#ifndef ATTENTION_SERVER_WIRE_INFER_DECODER_H_
#define ATTENTION_SERVER_WIRE_INFER_DECODER_H_

#include <grpcpp/support/slice.h>

#include <vector>

#include "absl/status/statusor.h"
#include "inference/grpc_service.pb.h"
#include "server/wire/tensor_bytes.h"

namespace attention::server {

/// An inference.ModelInferRequest apart from its tensors' elements, and those
/// beside it. It owns every byte.
struct DecodedInferRequest {
  /// Every field as protobuf's own parser would have it, without
  /// raw_input_contents and without the inputs' contents.
  inference::ModelInferRequest message;
  /// raw_input_contents, in order; large ones are not gathered yet.
  std::vector<TensorBytes> raw;
  /// For each input its serialized InferTensorContents, in pieces that make one
  /// message when put together; none where the field is absent.
  std::vector<std::vector<TensorBytes>> contents;
};

/// Decodes a serialized ModelInferRequest that came in `slices`, cut anywhere.
/// Elements are copied once or used where they lie; each slice is released as
/// it is read, or, where large elements lie in it, once these are gathered.
///
/// Unknown fields are skipped, as the protocol's other servers do; an unknown
/// parameter or input is refused later, by name. INVALID_ARGUMENT where the
/// bytes are not a message, where what is no element takes more than 64 KiB, or
/// where there are more than 64 entries of raw_input_contents or contents.
/// RESOURCE_EXHAUSTED where memory runs out. A length that claims more bytes
/// than there are allocates nothing.
absl::StatusOr<DecodedInferRequest> DecodeInferRequest(
    std::vector<grpc::Slice> slices);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_INFER_DECODER_H_
