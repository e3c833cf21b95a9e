#include "client/cpp/src/wire.h"

#include <chrono>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/cpp/src/request_tensors.h"
#include "client/cpp/src/wire_tensor.h"

namespace attention::client {
namespace {

// Says of one tensor after the other whether a message may hold them.
class SizeCheck {
 public:
  explicit SizeCheck(int64_t max_bytes) : max_bytes_(max_bytes) {}

  void Add(absl::string_view field, const Tensor& tensor) {
    if (!status_.ok()) return;
    if (!HasWireType(tensor.type())) {
      status_ = absl::InvalidArgumentError(absl::StrCat(
          field, ": datatype ", Name(tensor.type()),
          " cannot be sent (the wire has FP32, FP16, BF16, FP8, INT8, "
          "INT32, INT64, BOOL and UINT8)"));
      return;
    }
    bytes_ += tensor.byte_size();
    if (bytes_ > max_bytes_) {
      status_ = absl::ResourceExhaustedError(
          absl::StrCat(field, ": the request's tensors pass ", max_bytes_,
                       " bytes, this client's largest message"));
    }
  }
  void Add(absl::string_view field, const std::optional<Tensor>& tensor) {
    if (tensor) Add(field, *tensor);
  }

  void Add(const RowsToSend& rows) {
    Add("key", rows.key);
    Add("value", rows.value);
    Add("key_scale", rows.key_scale);
    Add("value_scale", rows.value_scale);
  }

  const absl::Status& status() const { return status_; }

 private:
  const int64_t max_bytes_;
  int64_t bytes_ = 0;
  absl::Status status_;
};

// A tensor that nobody has set; a key or a value has two extents or more.
bool IsUnset(const Tensor& tensor) { return tensor.shape() == Shape{0}; }

// They would not be sent.
absl::Status CheckNoKeys(const AttendRequest& request) {
  const char* const given = !IsUnset(request.key)     ? "key"
                            : !IsUnset(request.value) ? "value"
                            : request.key_scale       ? "key_scale"
                            : request.value_scale     ? "value_scale"
                                                      : nullptr;
  if (given == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(given,
                   ": given beside sequences (what a sequence is to get "
                   "goes into sequences.append)"));
}

}  // namespace

absl::Status CheckSendable(const AttendRequest& request, int64_t max_bytes) {
  if (request.sequences) {
    if (absl::Status keys = CheckNoKeys(request); !keys.ok()) return keys;
  }
  SizeCheck check(max_bytes);
  ForEachTensor(request, [&](const char* name, const Tensor& tensor) {
    check.Add(name, tensor);
  });
  return check.status();
}

absl::Status CheckSendable(const RowsToSend& rows, int64_t max_bytes) {
  SizeCheck check(max_bytes);
  check.Add(rows);
  return check.status();
}

ServerInfo FromProto(const v1::GetServerInfoResponse& response) {
  ServerInfo info;
  info.version = response.version();
  for (const v1::Backend& backend : response.backends()) {
    info.backends.push_back({backend.name(), backend.instruction_set(),
                             backend.experimental(), backend.broken()});
    if (backend.has_cost()) {
      const v1::BackendCost& cost = backend.cost();
      info.backends.back().cost = {cost.of_problem(), cost.of_multiply_add(),
                                   cost.of_byte()};
    }
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
  if (response.has_sequence_store()) {
    const v1::SequenceStore& store = response.sequence_store();
    SequenceStoreInfo& to = info.sequence_store.emplace();
    to.memory_limit = store.memory_limit();
    to.held_bytes = store.held_bytes();
    to.sequences = store.sequences();
    if (store.has_idle_limit_ms()) {
      to.idle_limit = std::chrono::milliseconds(store.idle_limit_ms());
    }
    to.incarnation = store.incarnation();
  }
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
