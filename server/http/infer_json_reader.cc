#include "server/http/infer_json_reader.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

using Json = nlohmann::json;

constexpr size_t kDeepest = 32;
constexpr size_t kMostOtherBytes = 64 << 10;

// By its type's name: clang 14 ends where it is to find out which one is meant.
template <typename T>
JsonScalar Scalar(const T& value) {
  return JsonScalar(std::in_place_type<T>, value);
}

}  // namespace

absl::Status InferJsonError(absl::string_view where,
                            absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", problem));
}

bool InferJsonReader::Fail(absl::Status status) {
  status_ = std::move(status);
  return false;
}

bool InferJsonReader::Check(const absl::Status& status, const char* key) {
  if (status.ok()) return true;
  return Fail(absl::Status(
      status.code(), absl::StrCat(TensorName(), key, ": ", status.message())));
}

bool InferJsonReader::Expected(const char* had, const char* expected) {
  return Fail(InferJsonError(levels_.empty() ? "body" : Where(),
                             absl::StrCat(had, " (expected ", expected, ")")));
}

bool InferJsonReader::Count(size_t bytes) {
  constexpr size_t kEach = 16;
  other_bytes_ += bytes + kEach;
  if (other_bytes_ <= kMostOtherBytes) return true;
  return Fail(
      InferJsonError("body", "all besides data takes more than 64 KiB"));
}

bool InferJsonReader::null() { return Value(Scalar(nullptr)); }
bool InferJsonReader::boolean(bool value) { return Value(Scalar(value)); }
bool InferJsonReader::number_integer(int64_t value) {
  return Value(Scalar(value));
}
bool InferJsonReader::number_unsigned(uint64_t value) {
  if (std::in_range<int64_t>(value)) {
    return Value(Scalar(static_cast<int64_t>(value)));
  }
  return Value(Scalar(value));
}
bool InferJsonReader::number_float(double value, const std::string& text) {
  return Value(Scalar(JsonReal{value, text}));
}
bool InferJsonReader::string(std::string& value) {
  return Value(Scalar(absl::string_view(value)));
}
bool InferJsonReader::binary(Json::binary_t& /*value*/) { return false; }

bool InferJsonReader::key(std::string& key) {
  key_ = key;
  if (!Count(key.size())) return false;
  Level& level = levels_.back();
  const InferKey known =
      HasKeys(level.place) ? KeyOf(level.place, key) : kNoKey;
  if ((level.keys & known) != 0) {
    return Fail(InferJsonError(Where(), "comes twice"));
  }
  level.keys |= known;
  return true;
}

bool InferJsonReader::parse_error(size_t position, const std::string& /*last*/,
                                  const Json::exception& error) {
  const absl::string_view what = error.what();
  // After "[json.exception.parse_error.101] ".
  return Fail(
      InferJsonError("body", absl::StrCat("no JSON at byte ", position, ": ",
                                          what.substr(what.find(']') + 2))));
}

bool InferJsonReader::Open(InferPlace place) {
  if (levels_.size() == kDeepest) {
    return Fail(
        InferJsonError("body", "objects and arrays are nested too deep"));
  }
  levels_.push_back({place});
  return true;
}

bool InferJsonReader::Value(const JsonScalar& value) {
  if (levels_.empty()) return Expected(KindOf(value), "an object");
  switch (levels_.back().place) {
    case InferPlace::kUnknown:
      return true;
    case InferPlace::kData:
      return Check(data_->Add(value), ".data");
    case InferPlace::kShape:
      return AddExtent(value);
    case InferPlace::kParameters:
      return SetParameter(value);
    case InferPlace::kInputs:
    case InferPlace::kOutputs:
      return Expected(KindOf(value), "objects");
    case InferPlace::kRequest:
    case InferPlace::kInput:
    case InferPlace::kOutput:
      break;
  }
  switch (KeyOf(levels_.back().place, key_)) {
    case kId:
      return SetText(value, *result_.fields.mutable_id());
    case kName:
      return SetText(value, in_output_ ? *output().mutable_name()
                                       : *input().mutable_name());
    case kDatatype:
      return SetText(value, *input().mutable_datatype());
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

bool InferJsonReader::start_object(size_t /*size*/) {
  if (levels_.empty()) return Open(InferPlace::kRequest);
  switch (levels_.back().place) {
    case InferPlace::kInputs:
      return StartInput();
    case InferPlace::kOutputs:
      return StartOutput();
    case InferPlace::kUnknown:
      return Open(InferPlace::kUnknown);
    case InferPlace::kData:
      return Fail(InferJsonError(absl::StrCat(TensorName(), ".data"),
                                 "has an object in it"));
    case InferPlace::kShape:
      return Fail(InferJsonError(absl::StrCat(TensorName(), ".shape"),
                                 "an object (expected integers)"));
    case InferPlace::kParameters:
      return Expected("an object", "a boolean, a number or a string");
    case InferPlace::kRequest:
    case InferPlace::kInput:
    case InferPlace::kOutput:
      break;
  }
  switch (KeyOf(levels_.back().place, key_)) {
    case kParametersKey:
      return Open(InferPlace::kParameters);
    case kNoKey:
      return Open(InferPlace::kUnknown);
    case kId:
    case kName:
    case kDatatype:
      return Expected("an object", "a string");
    default:
      return Expected("an object", "an array");
  }
}

bool InferJsonReader::end_object() {
  const InferPlace place = levels_.back().place;
  if (place == InferPlace::kInput && !EndInput()) return false;
  if (place == InferPlace::kOutput) in_tensor_ = false;
  levels_.pop_back();
  return true;
}

bool InferJsonReader::start_array(size_t /*size*/) {
  if (levels_.empty()) return Expected("an array", "an object");
  switch (levels_.back().place) {
    case InferPlace::kData:
      return Open(InferPlace::kData) && Check(data_->OpenArray(), ".data");
    case InferPlace::kUnknown:
      return Open(InferPlace::kUnknown);
    case InferPlace::kInputs:
    case InferPlace::kOutputs:
      return Expected("an array", "objects");
    case InferPlace::kShape:
      return Fail(InferJsonError(absl::StrCat(TensorName(), ".shape"),
                                 "an array (expected integers)"));
    case InferPlace::kParameters:
      return Expected("an array", "a boolean, a number or a string");
    case InferPlace::kRequest:
    case InferPlace::kInput:
    case InferPlace::kOutput:
      break;
  }
  switch (KeyOf(levels_.back().place, key_)) {
    case kInputsKey:
      return Open(InferPlace::kInputs);
    case kOutputsKey:
      return Open(InferPlace::kOutputs);
    case kShapeKey:
      return Open(InferPlace::kShape);
    case kDataKey:
      return StartData();
    case kNoKey:
      return Open(InferPlace::kUnknown);
    case kParametersKey:
      return Expected("an array", "an object");
    default:
      return Expected("an array", "a string");
  }
}

bool InferJsonReader::end_array() {
  if (levels_.back().place == InferPlace::kData &&
      !Check(data_->CloseArray(), ".data")) {
    return false;
  }
  levels_.pop_back();
  return true;
}

}  // namespace attention::server
