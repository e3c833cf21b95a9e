#ifndef ATTENTION_SERVER_HTTP_PROTO_JSON_H_
#define ATTENTION_SERVER_HTTP_PROTO_JSON_H_

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attention::server {

/// A message as the Open Inference Protocol writes it in JSON: protobuf's
/// names, 64-bit integers as numbers, every field but messages that are not set
/// and oneofs' members that are not.
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

/// A request's body that is not for inference: an object with few levels, empty
/// where there is no body. INVALID_ARGUMENT where it is something else.
absl::StatusOr<nlohmann::json> ReadBody(absl::string_view body);

/// Sets the fields of `message` that a body has, which may be some of `known`;
/// bytes are {"b64": BASE64}, as Triton has it. INVALID_ARGUMENT with the key
/// for one that is not known or a value of another type.
absl::Status ReadFields(absl::string_view body,
                        const std::vector<std::string>& known,
                        google::protobuf::Message& message);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PROTO_JSON_H_
