#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/datatype.h"
#include "core/shape.h"
#include "server/http/infer_json_reader.h"

namespace attention::server {
namespace {

constexpr int kMostTensors = 64;
// Of a caller's text that is in a message.
constexpr size_t kMostTold = 64;

}  // namespace

std::string InferJsonReader::TensorName() const {
  const inference::ModelInferRequest& fields = result_.fields;
  const std::string& name = in_output_ ? fields.outputs().rbegin()->name()
                                       : fields.inputs().rbegin()->name();
  if (!name.empty()) return name.substr(0, kMostTold);
  return in_output_ ? absl::StrCat("outputs[", fields.outputs_size() - 1, "]")
                    : absl::StrCat("inputs[", fields.inputs_size() - 1, "]");
}

std::string InferJsonReader::Where() const {
  const std::string key = key_.substr(0, kMostTold);
  const bool parameter = levels_.back().place == InferPlace::kParameters;
  if (in_tensor_) {
    return absl::StrCat(TensorName(), parameter ? ".parameters." : ".", key);
  }
  return levels_.size() == 2 && parameter ? absl::StrCat("parameters.", key)
                                          : key;
}

bool InferJsonReader::SetText(const JsonScalar& value, std::string& text) {
  const auto* const string = std::get_if<absl::string_view>(&value);
  if (string == nullptr) return Expected(KindOf(value), "a string");
  text = static_cast<std::string>(*string);
  return Count(text.size());
}

bool InferJsonReader::SetParameter(const JsonScalar& value) {
  auto& all = !in_tensor_  ? *result_.fields.mutable_parameters()
              : in_output_ ? *output().mutable_parameters()
                           : *input().mutable_parameters();
  if (all.contains(key_)) return Fail(InferJsonError(Where(), "comes twice"));
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

bool InferJsonReader::AddExtent(const JsonScalar& value) {
  const auto* const extent = std::get_if<int64_t>(&value);
  if (extent == nullptr) {
    return Fail(
        InferJsonError(absl::StrCat(TensorName(), ".shape"),
                       absl::StrCat(KindOf(value), " (expected integers)")));
  }
  input().add_shape(*extent);
  return Count(0);
}

bool InferJsonReader::StartInput() {
  if (result_.fields.inputs_size() == kMostTensors) {
    return Fail(InferJsonError("inputs", "more than 64"));
  }
  result_.fields.add_inputs();
  result_.inputs.emplace_back();
  in_tensor_ = true;
  in_output_ = false;
  data_.reset();
  return Open(InferPlace::kInput) && Count(0);
}

bool InferJsonReader::StartOutput() {
  if (result_.fields.outputs_size() == kMostTensors) {
    return Fail(InferJsonError("outputs", "more than 64"));
  }
  result_.fields.add_outputs();
  in_tensor_ = in_output_ = true;
  return Open(InferPlace::kOutput) && Count(0);
}

bool InferJsonReader::StartData() {
  const int index = result_.fields.inputs_size() - 1;
  const auto& read = known_ != nullptr ? known_->inputs(index) : input();
  if (read.datatype().empty() && known_ == nullptr) {
    again_ = true;
    return Open(InferPlace::kUnknown);
  }
  const std::optional<DataType> type = DataTypeFromName(read.datatype());
  if (!type) {
    return Fail(InferJsonError(
        TensorName(),
        absl::StrCat("datatype '", read.datatype().substr(0, kMostTold),
                     "' is unknown")));
  }
  data_.emplace(*type, none_());
  const absl::StatusOr<int64_t> count = ElementCount(
      {read.shape().data(), static_cast<size_t>(read.shape_size())},
      ByteSize(*type));
  // No more than the text can have, at two bytes for each.
  if (count.ok() && read.shape_size() > 0 &&
      *count <= static_cast<int64_t>(text_bytes_ / 2) &&
      !Check(data_->Reserve(*count), ".data")) {
    return false;
  }
  return Open(InferPlace::kData) && Check(data_->OpenArray(), ".data");
}

// What an input's parameters say about its elements, once all of it is read.
bool InferJsonReader::EndInput() {
  const auto& read = input();
  InferJson::Input& place = result_.inputs.back();
  place.in_region = read.parameters().contains("shared_memory_region");
  const auto binary = read.parameters().find("binary_data_size");
  if (binary != read.parameters().end()) {
    if (!binary->second.has_int64_param() || binary->second.int64_param() < 0) {
      return Fail(
          InferJsonError(absl::StrCat(TensorName(), ".binary_data_size"),
                         "(expected an integer of at least 0)"));
    }
    place.binary_bytes = binary->second.int64_param();
  }
  const bool has_data = (levels_.back().keys & kDataKey) != 0;
  const int places = (has_data ? 1 : 0) + (place.binary_bytes ? 1 : 0) +
                     (place.in_region ? 1 : 0);
  if (places != 1) {
    return Fail(InferJsonError(
        TensorName(), places == 0 ? "has no elements (expected data, "
                                    "binary_data_size or shared_memory_region)"
                                  : "has its elements in two places (expected "
                                    "one of data, binary_data_size and "
                                    "shared_memory_region)"));
  }
  if (data_) {
    if (!Check(data_->CheckShape({read.shape().data(),
                                  static_cast<size_t>(read.shape_size())}),
               ".data")) {
      return false;
    }
    place.elements = data_->Take();
  }
  in_tensor_ = false;
  return true;
}

}  // namespace attention::server
