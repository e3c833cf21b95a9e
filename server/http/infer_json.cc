#include "server/http/infer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/datatype.h"
#include "core/shape.h"
#include "server/http/json_elements.h"

namespace attention::server {
namespace {

using Json = nlohmann::json;

constexpr int kMostTensors = 64;
constexpr size_t kDeepest = 32;
constexpr size_t kMostOtherBytes = 64 << 10;
// Of one string or number. The library keeps a copy of the one that it reads.
constexpr size_t kMostTokenBytes = kMostOtherBytes;

absl::Status Error(absl::string_view where, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", problem));
}

// What the value of a key can be.
enum class Place : uint8_t {
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

// Keys that matter, for telling whether one comes twice.
enum Key : uint32_t {
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

Key KeyOf(Place place, absl::string_view key) {
  if (key == "parameters") return kParametersKey;
  if (place == Place::kRequest) {
    if (key == "id") return kId;
    if (key == "inputs") return kInputsKey;
    if (key == "outputs") return kOutputsKey;
    return kNoKey;
  }
  if (key == "name") return kName;
  if (place == Place::kOutput) return kNoKey;
  if (key == "datatype") return kDatatype;
  if (key == "shape") return kShapeKey;
  return key == "data" ? kDataKey : kNoKey;
}

bool HasKeys(Place place) {
  return place == Place::kRequest || place == Place::kInput ||
         place == Place::kOutput;
}

// By its type's name: clang 14 ends where it is to find out which one is meant.
template <typename T>
JsonScalar Scalar(const T& value) {
  return JsonScalar(std::in_place_type<T>, value);
}

// What the library calls as it reads. False ends it; then status() says why.
class Reader final : public nlohmann::json_sax<Json> {
 public:
  // With `known`, what an earlier reading found out about the inputs, elements
  // are read also where they come before their datatype.
  Reader(size_t text_bytes, const std::function<CountedBytes()>& none,
         const inference::ModelInferRequest* known)
      : text_bytes_(text_bytes), none_(none), known_(known) {}

  const absl::Status& status() const { return status_; }
  // Elements came before it was known what they are.
  bool again() const { return again_; }
  InferJson Take() { return std::move(result_); }

  bool null() override { return Value(Scalar(nullptr)); }
  bool boolean(bool value) override { return Value(Scalar(value)); }
  bool number_integer(int64_t value) override { return Value(Scalar(value)); }
  bool number_unsigned(uint64_t value) override {
    if (std::in_range<int64_t>(value)) {
      return Value(Scalar(static_cast<int64_t>(value)));
    }
    return Value(Scalar(value));
  }
  bool number_float(double value, const std::string& text) override {
    return Value(Scalar(JsonReal{value, text}));
  }
  bool string(std::string& value) override {
    return Value(Scalar(absl::string_view(value)));
  }
  bool binary(Json::binary_t& /*value*/) override { return false; }

  bool key(std::string& key) override {
    key_ = key;
    if (!Count(key.size())) return false;
    Level& level = levels_.back();
    const Key known = HasKeys(level.place) ? KeyOf(level.place, key) : kNoKey;
    if ((level.keys & known) != 0) return Fail(Error(Where(), "comes twice"));
    level.keys |= known;
    return true;
  }

  bool start_object(size_t /*size*/) override;
  bool end_object() override;
  bool start_array(size_t /*size*/) override;
  bool end_array() override;

  bool parse_error(size_t position, const std::string& /*last*/,
                   const Json::exception& error) override {
    const absl::string_view what = error.what();
    // After "[json.exception.parse_error.101] ".
    return Fail(Error("body", absl::StrCat("no JSON at byte ", position, ": ",
                                           what.substr(what.find(']') + 2))));
  }

 private:
  struct Level {
    Place place;
    uint32_t keys = 0;
  };

  bool Fail(absl::Status status) {
    status_ = std::move(status);
    return false;
  }
  bool Check(const absl::Status& status, const char* key) {
    if (status.ok()) return true;
    return Fail(
        absl::Status(status.code(),
                     absl::StrCat(TensorName(), key, ": ", status.message())));
  }
  bool Count(size_t bytes) {
    constexpr size_t kEach = 16;
    other_bytes_ += bytes + kEach;
    if (other_bytes_ <= kMostOtherBytes) return true;
    return Fail(Error("body", "all besides data takes more than 64 KiB"));
  }

  // The tensor that is being read: "query", or "inputs[0]" without a name.
  std::string TensorName() const {
    const bool output = in_output_;
    const std::string& name =
        output ? outputs().rbegin()->name() : inputs().rbegin()->name();
    if (!name.empty()) return name.substr(0, 64);
    return output ? absl::StrCat("outputs[", outputs().size() - 1, "]")
                  : absl::StrCat("inputs[", inputs().size() - 1, "]");
  }
  bool InTensor() const { return in_tensor_; }
  std::string Where() const {
    const std::string key = key_.substr(0, 64);
    if (InTensor()) {
      const bool parameter = levels_.back().place == Place::kParameters;
      return absl::StrCat(TensorName(), parameter ? ".parameters." : ".", key);
    }
    return levels_.size() == 2 && levels_.back().place == Place::kParameters
               ? absl::StrCat("parameters.", key)
               : key;
  }
  bool Expected(const char* had, const char* expected) {
    return Fail(Error(levels_.empty() ? "body" : Where(),
                      absl::StrCat(had, " (expected ", expected, ")")));
  }

  bool Value(const JsonScalar& value);
  bool SetText(const JsonScalar& value, std::string& text);
  bool SetParameter(const JsonScalar& value);
  bool AddExtent(const JsonScalar& value);
  bool StartInput();
  bool EndInput();
  bool StartData();
  bool Open(Place place);

  google::protobuf::RepeatedPtrField<
      inference::ModelInferRequest::InferInputTensor>&
  inputs() const {
    return *const_cast<inference::ModelInferRequest&>(result_.fields)
                .mutable_inputs();
  }
  google::protobuf::RepeatedPtrField<
      inference::ModelInferRequest::InferRequestedOutputTensor>&
  outputs() const {
    return *const_cast<inference::ModelInferRequest&>(result_.fields)
                .mutable_outputs();
  }
  google::protobuf::Map<std::string, inference::InferParameter>& parameters() {
    if (!in_tensor_) return *result_.fields.mutable_parameters();
    return in_output_ ? *outputs().rbegin()->mutable_parameters()
                      : *inputs().rbegin()->mutable_parameters();
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
  bool in_output_ = false;
  std::optional<JsonElements> data_;  // of the input that is being read
};

bool Reader::Open(Place place) {
  if (levels_.size() == kDeepest) {
    return Fail(Error("body", "objects and arrays are nested too deep"));
  }
  levels_.push_back({place});
  return true;
}

bool Reader::Value(const JsonScalar& value) {
  if (levels_.empty()) return Expected(KindOf(value), "an object");
  switch (levels_.back().place) {
    case Place::kUnknown:
      return true;
    case Place::kData:
      return Check(data_->Add(value), ".data");
    case Place::kShape:
      return AddExtent(value);
    case Place::kParameters:
      return SetParameter(value);
    case Place::kInputs:
    case Place::kOutputs:
      return Expected(KindOf(value), "objects");
    case Place::kRequest:
    case Place::kInput:
    case Place::kOutput:
      break;
  }
  switch (KeyOf(levels_.back().place, key_)) {
    case kId:
      return SetText(value, *result_.fields.mutable_id());
    case kName:
      return SetText(value, in_output_ ? *outputs().rbegin()->mutable_name()
                                       : *inputs().rbegin()->mutable_name());
    case kDatatype:
      return SetText(value, *inputs().rbegin()->mutable_datatype());
    case kInputsKey:
    case kOutputsKey:
    case kShapeKey:
    case kDataKey:
      return Expected(KindOf(value), "an array");
    case kParametersKey:
      return Expected(KindOf(value), "an object");
    case kNoKey:
      break;
  }
  return true;
}

bool Reader::SetText(const JsonScalar& value, std::string& text) {
  const auto* const string = std::get_if<absl::string_view>(&value);
  if (string == nullptr) return Expected(KindOf(value), "a string");
  text = static_cast<std::string>(*string);
  return Count(text.size());
}

bool Reader::SetParameter(const JsonScalar& value) {
  auto& all = parameters();
  if (all.contains(key_)) return Fail(Error(Where(), "comes twice"));
  inference::InferParameter& parameter = all[key_];
  if (const auto* truth = std::get_if<bool>(&value)) {
    parameter.set_bool_param(*truth);
  } else if (const auto* integer = std::get_if<int64_t>(&value)) {
    parameter.set_int64_param(*integer);
  } else if (const auto* natural = std::get_if<uint64_t>(&value)) {
    parameter.set_uint64_param(*natural);
  } else if (const auto* real = std::get_if<JsonReal>(&value)) {
    parameter.set_double_param(real->value);
  } else if (std::holds_alternative<absl::string_view>(value)) {
    return SetText(value, *parameter.mutable_string_param());
  } else {
    return Expected("null", "a boolean, a number or a string");
  }
  return Count(0);
}

bool Reader::AddExtent(const JsonScalar& value) {
  const auto* const extent = std::get_if<int64_t>(&value);
  if (extent == nullptr) {
    return Fail(Error(absl::StrCat(TensorName(), ".shape"),
                      absl::StrCat(KindOf(value), " (expected integers)")));
  }
  inputs().rbegin()->add_shape(*extent);
  return Count(0);
}

bool Reader::StartInput() {
  if (inputs().size() == kMostTensors) {
    return Fail(Error("inputs", "more than 64"));
  }
  result_.fields.add_inputs();
  result_.inputs.emplace_back();
  in_tensor_ = true;
  in_output_ = false;
  data_.reset();
  return Open(Place::kInput) && Count(0);
}

// What an input's parameters say about its elements, once all of it is read.
bool Reader::EndInput() {
  const auto& input = *inputs().rbegin();
  InferJson::Input& place = result_.inputs.back();
  place.in_region = input.parameters().contains("shared_memory_region");
  const auto binary = input.parameters().find("binary_data_size");
  if (binary != input.parameters().end()) {
    if (!binary->second.has_int64_param() || binary->second.int64_param() < 0) {
      return Fail(Error(absl::StrCat(TensorName(), ".binary_data_size"),
                        "(expected an integer of at least 0)"));
    }
    place.binary_bytes = binary->second.int64_param();
  }
  const bool has_data = (levels_.back().keys & kDataKey) != 0;
  const int places = (has_data ? 1 : 0) + (place.binary_bytes ? 1 : 0) +
                     (place.in_region ? 1 : 0);
  if (places != 1) {
    return Fail(Error(TensorName(),
                      places == 0 ? "has no elements (expected data, "
                                    "binary_data_size or shared_memory_region)"
                                  : "has its elements in two places (expected "
                                    "one of data, binary_data_size and "
                                    "shared_memory_region)"));
  }
  if (data_) {
    if (!Check(data_->CheckShape({input.shape().data(),
                                  static_cast<size_t>(input.shape_size())}),
               ".data")) {
      return false;
    }
    place.elements = data_->Take();
  }
  in_tensor_ = false;
  return true;
}

bool Reader::StartData() {
  const auto index = inputs().size() - 1;
  const auto& input =
      known_ != nullptr ? known_->inputs(index) : *inputs().rbegin();
  if (input.datatype().empty() && known_ == nullptr) {
    again_ = true;
    return Open(Place::kUnknown);
  }
  const std::optional<DataType> type = DataTypeFromName(input.datatype());
  if (!type) {
    return Fail(Error(TensorName(),
                      absl::StrCat("datatype '", input.datatype().substr(0, 64),
                                   "' is unknown")));
  }
  data_.emplace(*type, none_());
  const absl::StatusOr<int64_t> count = ElementCount(
      {input.shape().data(), static_cast<size_t>(input.shape_size())},
      ByteSize(*type));
  // No more than the text can have, at two bytes for each.
  if (count.ok() && input.shape_size() > 0 &&
      *count <= static_cast<int64_t>(text_bytes_ / 2) &&
      !Check(data_->Reserve(*count), ".data")) {
    return false;
  }
  return Open(Place::kData) && Check(data_->OpenArray(), ".data");
}

bool Reader::start_object(size_t /*size*/) {
  if (levels_.empty()) return Open(Place::kRequest);
  switch (levels_.back().place) {
    case Place::kInputs:
      return StartInput();
    case Place::kOutputs:
      if (outputs().size() == kMostTensors) {
        return Fail(Error("outputs", "more than 64"));
      }
      result_.fields.add_outputs();
      in_tensor_ = in_output_ = true;
      return Open(Place::kOutput) && Count(0);
    case Place::kUnknown:
      return Open(Place::kUnknown);
    case Place::kData:
      return Fail(
          Error(absl::StrCat(TensorName(), ".data"), "has an object in it"));
    case Place::kShape:
      return Fail(Error(absl::StrCat(TensorName(), ".shape"),
                        "an object (expected integers)"));
    case Place::kParameters:
      return Expected("an object", "a boolean, a number or a string");
    case Place::kRequest:
    case Place::kInput:
    case Place::kOutput:
      break;
  }
  switch (KeyOf(levels_.back().place, key_)) {
    case kParametersKey:
      return Open(Place::kParameters);
    case kNoKey:
      return Open(Place::kUnknown);
    case kId:
    case kName:
    case kDatatype:
      return Expected("an object", "a string");
    default:
      return Expected("an object", "an array");
  }
}

bool Reader::end_object() {
  const Place place = levels_.back().place;
  if (place == Place::kInput && !EndInput()) return false;
  if (place == Place::kOutput) in_tensor_ = false;
  levels_.pop_back();
  return true;
}

bool Reader::start_array(size_t /*size*/) {
  if (levels_.empty()) return Expected("an array", "an object");
  switch (levels_.back().place) {
    case Place::kData:
      return Open(Place::kData) && Check(data_->OpenArray(), ".data");
    case Place::kUnknown:
      return Open(Place::kUnknown);
    case Place::kInputs:
    case Place::kOutputs:
      return Expected("an array", "objects");
    case Place::kShape:
      return Fail(Error(absl::StrCat(TensorName(), ".shape"),
                        "an array (expected integers)"));
    case Place::kParameters:
      return Expected("an array", "a boolean, a number or a string");
    case Place::kRequest:
    case Place::kInput:
    case Place::kOutput:
      break;
  }
  switch (KeyOf(levels_.back().place, key_)) {
    case kInputsKey:
      return Open(Place::kInputs);
    case kOutputsKey:
      return Open(Place::kOutputs);
    case kShapeKey:
      return Open(Place::kShape);
    case kDataKey:
      return StartData();
    case kNoKey:
      return Open(Place::kUnknown);
    case kParametersKey:
      return Expected("an array", "an object");
    default:
      return Expected("an array", "a string");
  }
}

bool Reader::end_array() {
  if (levels_.back().place == Place::kData &&
      !Check(data_->CloseArray(), ".data")) {
    return false;
  }
  levels_.pop_back();
  return true;
}

// Whether every string and number is short enough to be copied.
absl::Status CheckTokens(absl::string_view text) {
  size_t token = 0;
  bool in_string = false;
  bool escaped = false;
  for (const char c : text) {
    if (in_string) {
      in_string = escaped || c != '"';
      escaped = !escaped && c == '\\';
      token = in_string ? token + 1 : 0;
    } else if (c == '"') {
      in_string = true;
      token = 0;
    } else {
      const bool ends = c == ',' || c == '[' || c == ']' || c == ' ' ||
                        c == '{' || c == '}' || c == ':' || c == '\n';
      token = ends ? 0 : token + 1;
    }
    if (token > kMostTokenBytes) {
      return Error("body", "a string or a number of more than 64 KiB");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<InferJson> ReadInferJson(
    absl::string_view text, const std::function<CountedBytes()>& none) {
  if (absl::Status tokens = CheckTokens(text); !tokens.ok()) return tokens;
  Reader reader(text.size(), none, nullptr);
  if (!Json::sax_parse(text.begin(), text.end(), &reader)) {
    return reader.status();
  }
  if (!reader.again()) return reader.Take();
  const inference::ModelInferRequest known = reader.Take().fields;
  Reader second(text.size(), none, &known);
  if (!Json::sax_parse(text.begin(), text.end(), &second)) {
    return second.status();
  }
  return second.Take();
}

}  // namespace attention::server
