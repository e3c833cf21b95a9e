#ifndef ATTENTION_SERVER_HTTP_PROTOCOL_PROTO_JSON_H_
#define ATTENTION_SERVER_HTTP_PROTOCOL_PROTO_JSON_H_

#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/base/json.h"

namespace attention::server {

/// A message as the Open Inference Protocol writes it in JSON: protobuf's
/// names, 64-bit integers as numbers, every field but messages that are not set
/// and oneofs' members that are not.
OrderedJson ToJson(const google::protobuf::Message& message);

/// Among the keys of ReadFields(): every key of the body is one of `settings`.
inline constexpr char kAllSettings[] = "*";

/// Sets the fields of `message` that a body's JSON has, which may be some of
/// `known`; no body sets none. Bytes are {"b64": BASE64}, as Triton has it. Of
/// maps, keys alone are read: they are refused by name, whatever they say.
/// INVALID_ARGUMENT with the key for one that is not known or a value of
/// another type, and where the body is no object.
absl::Status ReadFields(absl::string_view body,
                        const std::vector<std::string>& known,
                        google::protobuf::Message& message);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PROTOCOL_PROTO_JSON_H_
