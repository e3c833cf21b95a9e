#ifndef ATTENTION_SERVER_HTTP_INFER_JSON_READER_H_
#define ATTENTION_SERVER_HTTP_INFER_JSON_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "inference/grpc_service.pb.h"
#include "server/http/counted_bytes.h"
#include "server/http/infer_json.h"
#include "server/http/infer_json_keys.h"
#include "server/http/json_elements.h"

namespace attention::server {

/// INVALID_ARGUMENT with "WHERE: PROBLEM".
absl::Status InferJsonError(absl::string_view where, absl::string_view problem);

/// What the library calls as it reads the JSON of an inference request. False
/// ends it; then status() says why. infer_json_reader.cc follows the text's
/// structure, infer_json_tensors.cc puts the request together.
class InferJsonReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// Of a text of so many bytes; `none` as ReadInferJson() has it. With
  /// `known`, what an earlier reading found out about the inputs, elements are
  /// read also where they come before their datatype.
  InferJsonReader(size_t text_bytes, const std::function<CountedBytes()>& none,
                  const inference::ModelInferRequest* known)
      : text_bytes_(text_bytes), none_(none), known_(known) {}

  const absl::Status& status() const { return status_; }
  /// Elements came before it was known what they are.
  bool again() const { return again_; }
  InferJson Take() { return std::move(result_); }

  bool null() override;
  bool boolean(bool value) override;
  bool number_integer(int64_t value) override;
  bool number_unsigned(uint64_t value) override;
  bool number_float(double value, const std::string& text) override;
  bool string(std::string& value) override;
  bool binary(nlohmann::json::binary_t& value) override;
  bool key(std::string& key) override;
  bool start_object(size_t size) override;
  bool end_object() override;
  bool start_array(size_t size) override;
  bool end_array() override;
  bool parse_error(size_t position, const std::string& last,
                   const nlohmann::json::exception& error) override;

 private:
  struct Level {
    InferPlace place;
    uint32_t keys = 0;
  };

  bool Fail(absl::Status status);
  // Fails with the tensor's name and `key`, which begins with a point.
  bool Check(const absl::Status& status, const char* key);
  bool Expected(const char* had, const char* expected);
  // Of what is kept besides elements.
  bool Count(size_t bytes);
  // The tensor that is being read: "query", or "inputs[0]" without a name.
  std::string TensorName() const;
  // The key that is being read: "query.shape", "parameters.scale".
  std::string Where() const;

  bool Open(InferPlace place);
  bool Value(const JsonScalar& value);
  bool SetText(const JsonScalar& value, std::string& text);
  bool SetParameter(const JsonScalar& value);
  bool AddExtent(const JsonScalar& value);
  bool StartInput();
  bool StartOutput();
  bool StartData();
  bool EndInput();

  inference::ModelInferRequest::InferInputTensor& input() {
    return *result_.fields.mutable_inputs()->rbegin();
  }
  inference::ModelInferRequest::InferRequestedOutputTensor& output() {
    return *result_.fields.mutable_outputs()->rbegin();
  }

  const size_t text_bytes_;
  const std::function<CountedBytes()>& none_;
  const inference::ModelInferRequest* const known_;
  InferJson result_;
  absl::Status status_;
  bool again_ = false;
  std::vector<Level> levels_;
  std::string key_;
  size_t other_bytes_ = 0;
  bool in_tensor_ = false;
  bool in_output_ = false;            // of tensors, the last one's kind
  std::optional<JsonElements> data_;  // of the input that is being read
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_INFER_JSON_READER_H_
