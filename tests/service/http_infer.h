#ifndef ATTENTION_TESTS_SERVICE_HTTP_INFER_H_
#define ATTENTION_TESTS_SERVICE_HTTP_INFER_H_

#include <string>

#include "inference/grpc_service.pb.h"

namespace attention::test {

/// Where a request of kDotProduct is posted.
inline constexpr char kInferPath[] =
    "/v2/models/scaled_dot_product_attention/infer";

/// The request over HTTP: with its elements in JSON, or behind it.
struct HttpInfer {
  std::string body;
  std::string headers;
};

/// `request` as a body and the headers that it needs; of FP32 alone. `binary`:
/// elements lie behind the JSON, and are asked for likewise.
HttpInfer ToHttp(const inference::ModelInferRequest& request, bool binary);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_HTTP_INFER_H_
