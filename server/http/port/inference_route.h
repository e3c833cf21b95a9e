#ifndef ATTENTION_SERVER_HTTP_PORT_INFERENCE_ROUTE_H_
#define ATTENTION_SERVER_HTTP_PORT_INFERENCE_ROUTE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace attention::server {

/// What a path of the protocol asks for, by the name of the RPC that is the
/// same.
enum class InferenceMethod : uint8_t {
  kServerMetadata,
  kModelMetadata,
  kModelReady,
  kModelConfig,
  kModelStatistics,
  kModelInfer,
  kRepositoryIndex,
  kRepositoryModelLoad,
  kRepositoryModelUnload,
  kSystemSharedMemoryStatus,
  kSystemSharedMemoryRegister,
  kSystemSharedMemoryUnregister,
  kCudaSharedMemoryStatus,
  kCudaSharedMemoryRegister,
  kCudaSharedMemoryUnregister,
  kTraceSetting,
  kLogSettings,
};

struct InferenceRoute {
  InferenceMethod method = InferenceMethod::kServerMetadata;
  std::string name;     // of a model or a region; "" for all, or none
  std::string version;  // of the model; "" for the latest
  const char* http_methods = "GET, HEAD";
};

/// Where `path`, of a request with a method of HTTP that `http_methods` has,
/// leads; nothing for a path that the protocol has not. Percent signs are
/// decoded.
std::optional<InferenceRoute> FindInferenceRoute(absl::string_view path);

/// Whether the route takes that method of HTTP.
bool Takes(const InferenceRoute& route, absl::string_view http_method);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_INFERENCE_ROUTE_H_
