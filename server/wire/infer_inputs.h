#ifndef ATTENTION_SERVER_WIRE_INFER_INPUTS_H_
#define ATTENTION_SERVER_WIRE_INFER_INPUTS_H_

#include "absl/status/status.h"
#include "inference/grpc_service.pb.h"
#include "server/memory/hold_bytes.h"
#include "server/memory/shared_memory_registry.h"
#include "server/request/request_builder.h"
#include "server/wire/message_splitter.h"

namespace attention::server {

/// How raw_input_contents and contents are split off; unknown fields are
/// skipped.
const SplitRules& InferRules();

/// Makes the inputs of `message`, whose elements are marks of `elements`, the
/// tensors of a request for the model `model_name`. `regions` are those
/// that its caller may use. `hold` is asked for what typed contents take.
///
/// INVALID_ARGUMENT, beginning with the input's name, for what only the wire
/// can get wrong: unknown and repeated inputs, unknown datatypes, no elements
/// or elements in two places, byte counts that are not what the shape needs;
/// and what ReadRegion() refuses.
absl::Status ReadInputs(const inference::ModelInferRequest& message,
                        MessageElements& elements, absl::string_view model_name,
                        SharedMemoryAccess regions, HoldBytes hold,
                        RequestBuilder& builder);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_INFER_INPUTS_H_
