#ifndef ATTENTION_SERVER_WIRE_INFER_PARAMETERS_H_
#define ATTENTION_SERVER_WIRE_INFER_PARAMETERS_H_

#include <google/protobuf/map.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/problem.h"
#include "inference/grpc_service.pb.h"

namespace attention::server {

using InferParameters =
    google::protobuf::Map<std::string, inference::InferParameter>;

/// What a parameter is, for a message.
std::string DescribeValue(const inference::InferParameter& value);

/// A parameter's value as the type that its name asks for. Numbers may come as
/// double, as integer or as decimal string, because not every client has every
/// type; INVALID_ARGUMENT says what it was instead.
absl::StatusOr<double> NumberOf(const inference::InferParameter& value);
/// A whole number within 64 bits.
absl::StatusOr<int64_t> IntegerOf(const inference::InferParameter& value);
absl::StatusOr<uint64_t> UnsignedOf(const inference::InferParameter& value);
/// A bool, 0 or 1, "true" or "false".
absl::StatusOr<bool> BoolOf(const inference::InferParameter& value);
absl::StatusOr<std::string> TextOf(const inference::InferParameter& value);

/// Sets what a request's parameters say in `problem`, whose scoring function is
/// chosen already. The protocol's reserved keys are passed over.
/// INVALID_ARGUMENT for a key that is unknown, which lists the known ones, for
/// one that the scoring function does not have, and for values of a wrong type;
/// whether a value makes sense is Validate()'s.
absl::Status ApplyParameters(const InferParameters& parameters,
                             AttentionProblem& problem);

/// Where an input or an output lies, if its parameters name a region.
struct RegionReference {
  std::string region;
  uint64_t offset = 0;     // bytes
  uint64_t byte_size = 0;  // bytes
};

/// What an input's or an output's own parameters say; `field` is its name.
/// INVALID_ARGUMENT for a key that is unknown, a wrong type, or a size without
/// a region.
absl::StatusOr<std::optional<RegionReference>> RegionOf(
    absl::string_view field, const InferParameters& parameters);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_INFER_PARAMETERS_H_
