#include "client/cpp/src/wire.h"

#include "client/cpp/src/wire_tensor.h"

namespace attention::client {
namespace {

// Calls visit(field name, tensor) for every tensor of the request until one
// gives an error.
template <typename Visit>
absl::Status ForEachTensor(const AttendRequest& request, Visit visit) {
  absl::Status status = visit("query", request.query);
  if (status.ok()) status = visit("key", request.key);
  if (status.ok()) status = visit("value", request.value);
  if (const auto* additive = std::get_if<Additive>(&request.scoring)) {
    if (status.ok()) status = visit("w_q", additive->w_q);
    if (status.ok()) status = visit("w_k", additive->w_k);
    if (status.ok()) status = visit("w_v", additive->w_v);
  }
  if (const auto* bilinear = std::get_if<Bilinear>(&request.scoring)) {
    if (status.ok()) status = visit("m", bilinear->m);
  }
  const auto visit_optional = [&](absl::string_view field,
                                  const std::optional<Tensor>& tensor) {
    if (status.ok() && tensor) status = visit(field, *tensor);
  };
  visit_optional("valid_lens", request.valid_lens);
  visit_optional("attend_mask", request.attend_mask);
  visit_optional("bias", request.bias);
  visit_optional("key_scale", request.key_scale);
  visit_optional("value_scale", request.value_scale);
  return status;
}

}  // namespace

absl::Status CheckSendable(const AttendRequest& request, int64_t max_bytes) {
  int64_t bytes = 0;
  return ForEachTensor(
      request, [&](absl::string_view field, const Tensor& tensor) {
        if (!HasWireType(tensor.type())) {
          return absl::InvalidArgumentError(absl::StrCat(
              field, ": datatype ", Name(tensor.type()),
              " cannot be sent (the wire has FP32, FP16, BF16, FP8, INT8, "
              "INT32, INT64, BOOL and UINT8)"));
        }
        bytes += tensor.byte_size();
        if (bytes > max_bytes) {
          return absl::ResourceExhaustedError(
              absl::StrCat(field, ": the request's tensors pass ", max_bytes,
                           " bytes, this client's largest message"));
        }
        return absl::OkStatus();
      });
}

ServerInfo FromProto(const v1::GetServerInfoResponse& response) {
  ServerInfo info;
  info.version = response.version();
  for (const v1::Backend& backend : response.backends()) {
    info.backends.push_back({backend.name(), backend.instruction_set(),
                             backend.experimental(), backend.broken()});
  }
  for (const v1::UnusedBackend& unused : response.unused_backends()) {
    info.unused_backends.push_back({unused.name(), unused.reason()});
  }
  for (const v1::Device& device : response.devices()) {
    info.devices.push_back({device.name(), device.memory_bytes()});
  }
  info.worker_threads = response.worker_threads();
  const v1::Limits& limits = response.limits();
  info.max_request_bytes = limits.max_request_bytes();
  info.max_response_bytes = limits.max_response_bytes();
  info.max_requests_in_flight = limits.max_requests_in_flight();
  info.max_bytes_in_flight = limits.max_bytes_in_flight();
  info.max_stream_requests_in_flight = limits.max_stream_requests_in_flight();
  return info;
}

absl::Status StatusFromCode(int code, absl::string_view message) {
  const bool known =
      code >= static_cast<int>(absl::StatusCode::kOk) &&
      code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return {
      known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
      message};
}

}  // namespace attention::client
