#ifndef ATTENTION_SERVER_HTTP_PROTO_JSON_H_
#define ATTENTION_SERVER_HTTP_PROTO_JSON_H_

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

namespace attention::server {

/// A message as the Open Inference Protocol writes it in JSON: protobuf's
/// names, 64-bit integers as numbers, every field but messages that are not set
/// and oneofs' members that are not.
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PROTO_JSON_H_
