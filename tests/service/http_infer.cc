#include "tests/service/http_infer.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"

namespace attention::test {
namespace {

using Json = nlohmann::json;

// FP32 alone.
Json Floats(const std::string& bytes) {
  Json list = Json::array();
  for (size_t at = 0; at < bytes.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    list.push_back(value);
  }
  return list;
}

}  // namespace

HttpInfer ToHttp(const inference::ModelInferRequest& request, bool binary) {
  Json json = {{"id", request.id()}, {"inputs", Json::array()}};
  std::string behind;
  for (int i = 0; i < request.inputs_size(); ++i) {
    const auto& from = request.inputs(i);
    Json input = {{"name", from.name()},
                  {"datatype", from.datatype()},
                  {"shape", from.shape()}};
    const std::string& raw = request.raw_input_contents(i);
    if (binary) {
      input["parameters"]["binary_data_size"] = raw.size();
      behind += raw;
    } else {
      input["data"] = Floats(raw);
    }
    json["inputs"].push_back(input);
  }
  if (binary) json["parameters"]["binary_data_output"] = true;
  const std::string text = json.dump();
  return {text + behind,
          binary ? absl::StrCat(
                       "Inference-Header-Content-Length: ", text.size(), "\r\n")
                 : ""};
}

}  // namespace attention::test
