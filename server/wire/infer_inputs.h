#ifndef ATTENTION_SERVER_WIRE_INFER_INPUTS_H_
#define ATTENTION_SERVER_WIRE_INFER_INPUTS_H_

#include "absl/status/status.h"
#include "inference/grpc_service.pb.h"
#include "server/memory/hold_bytes.h"
#include "server/memory/shared_memory_registry.h"
#include "server/request/request_builder.h"
#include "server/wire/message_splitter.h"

namespace attention::server {

/// How raw_input_contents and contents are split off.
const SplitRules& InferRules();

/// Where the elements of a request's inputs are, of those that lie in no
/// region: each wire has them elsewhere.
class InputElements {
 public:
  virtual ~InputElements() = default;

  /// Makes those of inputs(index) the tensor's; called in the inputs' order.
  virtual absl::Status Set(int index, const TensorField& field, DataType type,
                           RequestBuilder& builder) = 0;
  /// That there are none that no input has.
  virtual absl::Status CheckAllSet() const = 0;
};

/// Those of a message, which has marks of `elements` in their place. `hold` is
/// asked for what typed contents take. The arguments outlive it.
class MessageInputs final : public InputElements {
 public:
  MessageInputs(const inference::ModelInferRequest& message,
                MessageElements& elements, HoldBytes hold)
      : message_(message), elements_(elements), hold_(hold) {}

  absl::Status Set(int index, const TensorField& field, DataType type,
                   RequestBuilder& builder) override;
  absl::Status CheckAllSet() const override;

 private:
  using Input = inference::ModelInferRequest::InferInputTensor;

  absl::Status SetRaw(const Input& input, const TensorField& field,
                      DataType type, RequestBuilder& builder);
  absl::Status SetContents(const Input& input, const TensorField& field,
                           DataType type, RequestBuilder& builder);

  const inference::ModelInferRequest& message_;
  MessageElements& elements_;
  const HoldBytes hold_;
  int next_raw_ = 0;
};

/// Makes the inputs of `message`, whose elements are in `elements`, the tensors
/// of a request for the model `model_name`. `regions` are those that its caller
/// may use; `hold` is asked for what is copied from them.
///
/// INVALID_ARGUMENT, beginning with the input's name, for what only the wire
/// can get wrong: unknown and repeated inputs, unknown datatypes, no elements
/// or elements in two places, byte counts that are not what the shape needs;
/// and what ReadRegion() refuses.
absl::Status ReadInputs(const inference::ModelInferRequest& message,
                        InputElements& elements, absl::string_view model_name,
                        SharedMemoryAccess regions, HoldBytes hold,
                        RequestBuilder& builder);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_INFER_INPUTS_H_
