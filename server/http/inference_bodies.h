#ifndef ATTENTION_SERVER_HTTP_INFERENCE_BODIES_H_
#define ATTENTION_SERVER_HTTP_INFERENCE_BODIES_H_

#include "absl/status/statusor.h"
#include "inference/grpc_service.pb.h"
#include "server/http/http_message.h"
#include "server/http/inference_route.h"

/// The service's requests, by a path and the JSON of a body: for all that is no
/// inference.
///
/// Each is INVALID_ARGUMENT with the key where the body is no JSON, has a key
/// that is not known, or a value of another type. Where there is none, nothing
/// is said.
namespace attention::server {

absl::StatusOr<inference::RepositoryIndexRequest> IndexRequest(
    const HttpRequest& http);

/// The service refuses parameters by name, whatever they say.
absl::StatusOr<inference::RepositoryModelLoadRequest> LoadRequest(
    const HttpRequest& http, const InferenceRoute& route);
absl::StatusOr<inference::RepositoryModelUnloadRequest> UnloadRequest(
    const HttpRequest& http, const InferenceRoute& route);

absl::StatusOr<inference::SystemSharedMemoryRegisterRequest>
SystemRegisterRequest(const HttpRequest& http, const InferenceRoute& route);
absl::StatusOr<inference::CudaSharedMemoryRegisterRequest> CudaRegisterRequest(
    const HttpRequest& http, const InferenceRoute& route);

/// Likewise settings.
absl::StatusOr<inference::TraceSettingRequest> TraceRequest(
    const HttpRequest& http, const InferenceRoute& route);
absl::StatusOr<inference::LogSettingsRequest> LogRequest(
    const HttpRequest& http);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_INFERENCE_BODIES_H_
