#ifndef ATTENTION_TESTS_UNIT_SERVER_INFER_DECODING_H_
#define ATTENTION_TESTS_UNIT_SERVER_INFER_DECODING_H_

#include <string>
#include <vector>

#include "server/models/model_table.h"
#include "server/wire/infer_wire.h"
#include "tests/unit/server/attend_requests.h"

/// Requests of the Open Inference Protocol, and what is read of them.
namespace attention::server {

inline inference::ModelInferRequest::InferInputTensor& AddInput(
    inference::ModelInferRequest& request, const char* name, const char* type,
    const std::vector<int64_t>& shape) {
  auto& input = *request.add_inputs();
  input.set_name(name);
  input.set_datatype(type);
  for (const int64_t extent : shape) input.add_shape(extent);
  return input;
}

inline void AddRawInput(inference::ModelInferRequest& request, const char* name,
                        const char* type, const std::vector<int64_t>& shape,
                        const std::string& bytes) {
  AddInput(request, name, type, shape);
  request.add_raw_input_contents(bytes);
}

/// One query of width 2 over two keys, values of width 1.
inline inference::ModelInferRequest SmallInferRequest(
    const char* model = "scaled_dot_product_attention") {
  inference::ModelInferRequest request;
  request.set_model_name(model);
  request.set_id("small");
  AddRawInput(request, "query", "FP32", {1, 2}, Floats({1, 2}));
  AddRawInput(request, "key", "FP32", {2, 2}, Floats({1, 0, 1, 0}));
  AddRawInput(request, "value", "FP32", {2, 1}, Floats({3, 5}));
  return request;
}

/// What InferWire reads of a message, by the built-in models.
struct DecodedInfer {
  explicit DecodedInfer(const inference::ModelInferRequest& message,
                        bool on_stream = false,
                        HoldBytes hold = server::HoldUncounted)
      : models(repository),
        wire(models, /*regions=*/{}, on_stream),
        request(wire.Decode(OneSlice(message.SerializeAsString()), hold)) {}

  const AttentionProblem& problem() const { return request->problem; }

  ModelRepository repository;
  ModelTable models;
  InferWire wire;
  absl::StatusOr<AttentionRequest> request;
};

}  // namespace attention::server

#endif  // ATTENTION_TESTS_UNIT_SERVER_INFER_DECODING_H_
