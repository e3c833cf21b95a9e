// Inputs of an inference in JSON, and their elements as they are read.
#ifndef ATTENTION_TESTS_UNIT_SERVER_JSON_INFER_FIXTURE_H_
#define ATTENTION_TESTS_UNIT_SERVER_JSON_INFER_FIXTURE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/http/protocol/infer_json.h"
#include "server/http/protocol/json_elements.h"
#include "server/request/request_builder.h"

namespace attention::server {

// One input of that datatype, shape and data.
inline std::string Input(const std::string& type, const std::string& shape,
                         const std::string& data) {
  return absl::StrCat("{\"inputs\":[{\"name\":\"query\",\"datatype\":\"", type,
                      "\",\"shape\":", shape, ",\"data\":", data, "}]}");
}

// The first input's elements, beside what is read before them.
inline absl::StatusOr<AlignedBuffer> ReadElements(
    const std::string& text, HoldBytes hold = HoldUncounted) {
  InferJson json;
  absl::Status read = ReadInferJson(text, HoldUncounted, json);
  if (!read.ok()) return read;
  if (json.inputs.empty() || !json.inputs[0].data) return AlignedBuffer();
  const auto& input = json.fields.inputs(0);
  absl::StatusOr<AlignedBuffer> elements = ReadJsonElements(
      *json.inputs[0].data, *DataTypeFromName(input.datatype()), input.shape(),
      hold);
  if (elements.ok()) return elements;
  return Named(input.name() + ".data", elements.status());
}

}  // namespace attention::server

#endif  // ATTENTION_TESTS_UNIT_SERVER_JSON_INFER_FIXTURE_H_
