#ifndef ATTENTION_TESTS_SERVICE_INFER_REQUESTS_H_
#define ATTENTION_TESTS_SERVICE_INFER_REQUESTS_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/v1/attention.pb.h"
#include "inference/grpc_service.pb.h"
#include "tests/service/wire_client.h"

/// The Open Inference Protocol as a client speaks it, for requests that our own
/// API can also be asked.
namespace attention::test {

inline constexpr char kDotProduct[] = "scaled_dot_product_attention";
inline constexpr char kModelInfer[] =
    "/inference.GRPCInferenceService/ModelInfer";
inline constexpr char kModelStreamInfer[] =
    "/inference.GRPCInferenceService/ModelStreamInfer";

/// "/inference.GRPCInferenceService/METHOD".
std::string InferenceMethod(const std::string& method);

/// The same question as a ModelInferRequest with raw contents; it asks for the
/// outputs that `request` wants, "output" first.
inference::ModelInferRequest ToInfer(const v1::AttendRequest& request);

/// Moves every input's elements from raw_input_contents to typed contents.
/// FP32, INT8, INT32, INT64, BOOL and UINT8 alone.
void UseTypedContents(inference::ModelInferRequest& request);

/// Adds an input with raw contents.
void AddInput(const std::string& name, const v1::Tensor& tensor,
              inference::ModelInferRequest& request);

absl::StatusOr<inference::ModelInferResponse> Infer(
    WireClient& client, const inference::ModelInferRequest& request);

/// Any other unary method of the service.
template <typename Response, typename Request>
absl::StatusOr<Response> CallInference(WireClient& client,
                                       const std::string& method,
                                       const Request& request) {
  const auto bytes =
      client.Call(InferenceMethod(method), request.SerializeAsString());
  if (!bytes.ok()) return bytes.status();
  Response response;
  if (!response.ParseFromString(*bytes)) {
    return absl::InternalError("the reply is not a message");
  }
  return response;
}

/// Says that an input's or output's elements are `size` bytes of a region.
template <typename Tensor>
void PutInRegion(Tensor& tensor, const std::string& region, size_t offset,
                 size_t size) {
  auto& parameters = *tensor.mutable_parameters();
  parameters["shared_memory_region"].set_string_param(region);
  parameters["shared_memory_byte_size"].set_int64_param(
      static_cast<int64_t>(size));
  if (offset > 0) {
    parameters["shared_memory_offset"].set_int64_param(
        static_cast<int64_t>(offset));
  }
}

/// Fails unless both answers have the same tensors, to the bit.
void ExpectSameAnswer(
    const absl::StatusOr<inference::ModelInferResponse>& infer,
    const absl::StatusOr<v1::AttendResponse>& attend);

/// GoodRequest() as a ModelInferRequest.
inference::ModelInferRequest GoodInfer(const std::string& id = "good");

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_INFER_REQUESTS_H_
