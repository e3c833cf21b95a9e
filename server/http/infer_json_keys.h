#ifndef ATTENTION_SERVER_HTTP_INFER_JSON_KEYS_H_
#define ATTENTION_SERVER_HTTP_INFER_JSON_KEYS_H_

#include <cstdint>

#include "absl/strings/string_view.h"

/// What there is in the JSON of an inference request.
namespace attention::server {

/// Objects and arrays.
enum class InferPlace : uint8_t {
  kRequest,
  kInputs,
  kInput,
  kOutputs,
  kOutput,
  kParameters,
  kShape,
  kData,
  kUnknown,  // and all within it
};

/// Keys that matter, as bits: for telling whether one comes twice.
enum InferKey : uint32_t {
  kId = 1,
  kInputsKey = 2,
  kOutputsKey = 4,
  kParametersKey = 8,
  kName = 16,
  kDatatype = 32,
  kShapeKey = 64,
  kDataKey = 128,
  kNoKey = 0,
};

/// Whether there are keys that matter in it.
inline bool HasKeys(InferPlace place) {
  return place == InferPlace::kRequest || place == InferPlace::kInput ||
         place == InferPlace::kOutput;
}

/// Of a place that HasKeys().
inline InferKey KeyOf(InferPlace place, absl::string_view key) {
  if (key == "parameters") return kParametersKey;
  if (place == InferPlace::kRequest) {
    if (key == "id") return kId;
    if (key == "inputs") return kInputsKey;
    if (key == "outputs") return kOutputsKey;
    return kNoKey;
  }
  if (key == "name") return kName;
  if (place == InferPlace::kOutput) return kNoKey;
  if (key == "datatype") return kDatatype;
  if (key == "shape") return kShapeKey;
  return key == "data" ? kDataKey : kNoKey;
}

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_INFER_JSON_KEYS_H_
