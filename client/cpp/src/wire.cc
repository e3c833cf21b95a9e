#include "client/cpp/src/wire.h"

#include "client/cpp/src/wire_tensor.h"

namespace attention::client {
namespace {

v1::Causal ToProto(Causal causal) {
  switch (causal) {
    case Causal::kNone:
      return v1::CAUSAL_NONE;
    case Causal::kTopLeft:
      return v1::CAUSAL_TOP_LEFT;
    case Causal::kBottomRight:
      return v1::CAUSAL_BOTTOM_RIGHT;
  }
  return v1::CAUSAL_NONE;
}

// One overload per scoring function, for std::visit.
struct ScoringWriter {
  v1::AttendRequest& message;

  void operator()(const ScaledDotProduct& scoring) const {
    v1::ScaledDotProduct* out = message.mutable_scaled_dot_product();
    if (scoring.scale) out->set_scale(*scoring.scale);
  }
  void operator()(const Additive& scoring) const {
    v1::Additive* out = message.mutable_additive();
    WriteTensor(scoring.w_q, *out->mutable_w_q());
    WriteTensor(scoring.w_k, *out->mutable_w_k());
    WriteTensor(scoring.w_v, *out->mutable_w_v());
  }
  void operator()(const Gaussian& scoring) const {
    v1::Gaussian* out = message.mutable_gaussian();
    if (scoring.sigma) out->set_sigma(*scoring.sigma);
  }
  void operator()(const Bilinear& scoring) const {
    v1::Bilinear* out = message.mutable_bilinear();
    WriteTensor(scoring.m, *out->mutable_m());
    if (scoring.scale) out->set_scale(*scoring.scale);
  }
  void operator()(const ParameterSet& scoring) const {
    v1::ParameterSet* out = message.mutable_parameter_set();
    out->set_name(scoring.name);
    if (scoring.scale) out->set_scale(*scoring.scale);
    if (scoring.sigma) out->set_sigma(*scoring.sigma);
  }
};

void WriteMasks(const AttendRequest& request, v1::AttendRequest& message) {
  if (request.valid_lens) {
    WriteTensor(*request.valid_lens, *message.mutable_valid_lens());
  }
  if (request.attend_mask) {
    WriteTensor(*request.attend_mask, *message.mutable_attend_mask());
  }
  if (request.bias) WriteTensor(*request.bias, *message.mutable_bias());
  if (request.causal) message.set_causal(ToProto(*request.causal));
  if (request.query_offset) message.set_query_offset(*request.query_offset);
  if (request.key_offset) message.set_key_offset(*request.key_offset);
  if (request.window_left) message.set_window_left(*request.window_left);
  if (request.window_right) message.set_window_right(*request.window_right);
}

void WriteDropout(const AttendRequest& request, v1::AttendRequest& message) {
  if (request.training) message.set_training(*request.training);
  if (request.dropout_p) message.set_dropout_p(*request.dropout_p);
  if (request.seed) message.set_seed(*request.seed);
  if (request.weights_after_dropout) {
    message.set_weights_after_dropout(*request.weights_after_dropout);
  }
}

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
              " cannot be sent (the wire has FP32, FP16, BF16, INT32, INT64, "
              "BOOL and UINT8)"));
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

v1::AttendRequest ToProto(const AttendRequest& request) {
  v1::AttendRequest message;
  message.set_id(request.id);
  WriteTensor(request.query, *message.mutable_query());
  v1::KeyValueTensors& key_value = *message.mutable_key_value();
  WriteTensor(request.key, *key_value.mutable_key());
  WriteTensor(request.value, *key_value.mutable_value());
  std::visit(ScoringWriter{message}, request.scoring);
  if (request.softcap) message.set_softcap(*request.softcap);
  WriteMasks(request, message);
  WriteDropout(request, message);
  if (request.empty_rows) {
    message.set_empty_rows(*request.empty_rows == EmptyRows::kUniform
                               ? v1::EMPTY_ROWS_UNIFORM
                               : v1::EMPTY_ROWS_ZERO);
  }
  if (request.return_weights) message.set_return_weights(true);
  if (request.return_lse) message.set_return_lse(true);
  return message;
}

absl::StatusOr<AttendResult> FromProto(const AttendRequest& request,
                                       const v1::AttendResponse& response) {
  AttendResult result;
  result.id = response.id();
  absl::StatusOr<Tensor> output =
      ReadTensor("output", response.has_output(), response.output());
  if (!output.ok()) return output.status();
  result.output = *std::move(output);
  if (request.return_weights) {
    absl::StatusOr<Tensor> weights =
        ReadTensor("weights", response.has_weights(), response.weights());
    if (!weights.ok()) return weights.status();
    result.weights = *std::move(weights);
  }
  if (request.return_lse) {
    absl::StatusOr<Tensor> lse =
        ReadTensor("lse", response.has_lse(), response.lse());
    if (!lse.ok()) return lse.status();
    result.lse = *std::move(lse);
  }
  result.backend = response.backend();
  result.kernel = response.kernel();
  result.queue_time = std::chrono::nanoseconds(response.queue_ns());
  result.compute_time = std::chrono::nanoseconds(response.compute_ns());
  return result;
}

ServerInfo FromProto(const v1::GetServerInfoResponse& response) {
  ServerInfo info;
  info.version = response.version();
  for (const v1::Backend& backend : response.backends()) {
    info.backends.push_back(
        {backend.name(), backend.instruction_set(), backend.experimental()});
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
