#include "server/wire/attend_fields.h"

#include <google/protobuf/descriptor.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/request/option_fields.h"
#include "server/request/scoring_names.h"

namespace attention::server {
namespace {

namespace pb = google::protobuf;

// A tensor's field, and the field of AttendRequest that it lies in; null where
// it is one itself.
struct TensorPath {
  const TensorField* tensor;
  const pb::FieldDescriptor* parent;
  const pb::FieldDescriptor* field;
};

struct OptionPath {
  const OptionField* option;
  const pb::FieldDescriptor* field;
};

struct AttendPaths {
  std::vector<TensorPath> tensors;
  std::vector<OptionPath> options;  // of AttendRequest itself
};

void AddTensor(const pb::FieldDescriptor* parent,
               const pb::FieldDescriptor* field, AttendPaths& paths) {
  if (field->message_type() != v1::Tensor::descriptor()) return;
  if (const TensorField* tensor = FindTensor(field->name())) {
    paths.tensors.push_back({tensor, parent, field});
  }
}

AttendPaths FindPaths() {
  AttendPaths paths;
  const pb::Descriptor& message = *v1::AttendRequest::descriptor();
  for (int n = 0; n < message.field_count(); ++n) {
    const pb::FieldDescriptor* field = message.field(n);
    if (const OptionField* option = FindOption(field->name())) {
      paths.options.push_back({option, field});
    }
    AddTensor(nullptr, field, paths);
    const pb::Descriptor* inner = field->message_type();
    for (int m = 0; inner != nullptr && m < inner->field_count(); ++m) {
      AddTensor(field, inner->field(m), paths);
    }
  }
  return paths;
}

const AttendPaths& Paths() {
  static const auto* const paths = new AttendPaths(FindPaths());
  return *paths;
}

std::optional<DataType> ToDataType(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_FP32:
      return DataType::kFloat32;
    case v1::DATA_TYPE_FP16:
      return DataType::kFloat16;
    case v1::DATA_TYPE_BF16:
      return DataType::kBFloat16;
    case v1::DATA_TYPE_INT32:
      return DataType::kInt32;
    case v1::DATA_TYPE_INT64:
      return DataType::kInt64;
    case v1::DATA_TYPE_BOOL:
      return DataType::kBool;
    case v1::DATA_TYPE_UINT8:
      return DataType::kUint8;
    default:
      return std::nullopt;
  }
}

absl::Status ReadTensor(const TensorField& field, const v1::Tensor& tensor,
                        MessageElements& elements, RequestBuilder& builder) {
  const std::optional<DataType> type = ToDataType(tensor.datatype());
  if (!type) {
    const int number = tensor.datatype();
    return FieldError(
        field.name,
        absl::StrCat("datatype ", number,
                     number == 0 ? " is unspecified" : " is unknown",
                     " (expected ", field.types, ")"));
  }
  TensorBytes* const bytes = elements.Find(tensor.data());
  if (bytes == nullptr) {
    return builder.SetTensor(field, *type, tensor.shape(),
                             absl::Span<const std::byte>());
  }
  if (field.read_first) bytes->Gather();
  return builder.SetTensor(field, *type, tensor.shape(), bytes->bytes());
}

OptionValue ValueOf(const pb::Message& message,
                    const pb::FieldDescriptor& field,
                    const OptionField& option) {
  const pb::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.GetDouble(message, &field);
    case pb::FieldDescriptor::CPPTYPE_INT64:
      return reflection.GetInt64(message, &field);
    case pb::FieldDescriptor::CPPTYPE_UINT64:
      return reflection.GetUInt64(message, &field);
    case pb::FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field);
    case pb::FieldDescriptor::CPPTYPE_ENUM: {
      // Words stand in the order of the enumeration.
      const int number = reflection.GetEnumValue(message, &field);
      if (number >= 0 && static_cast<size_t>(number) < option.words.size()) {
        return static_cast<std::string>(option.words[number]);
      }
      return int64_t{number};
    }
    default:
      return {};
  }
}

// The field that the message's scoring is; null where it has none.
const pb::FieldDescriptor* ScoringField(const v1::AttendRequest& message) {
  static const pb::OneofDescriptor* const oneof =
      v1::AttendRequest::descriptor()->FindOneofByName("scoring");
  return message.GetReflection()->GetOneofFieldDescriptor(message, oneof);
}

}  // namespace

const SplitRules& AttendRules() {
  static const auto* const rules =
      new SplitRules{*v1::AttendRequest::descriptor(),
                     UnknownFields::kRefuse,
                     {v1::Tensor::descriptor()->FindFieldByNumber(
                         v1::Tensor::kDataFieldNumber)}};
  return *rules;
}

absl::Status ReadTensors(const v1::AttendRequest& message,
                         MessageElements& elements, RequestBuilder& builder) {
  const pb::Reflection& reflection = *message.GetReflection();
  for (const auto& [tensor, parent, field] : Paths().tensors) {
    const pb::Message* holder = &message;
    const pb::Reflection* inner = &reflection;
    if (parent != nullptr) {
      if (!reflection.HasField(message, parent)) continue;
      holder = &reflection.GetMessage(message, parent);
      inner = holder->GetReflection();
    }
    if (!inner->HasField(*holder, field)) continue;
    absl::Status status = ReadTensor(
        *tensor,
        static_cast<const v1::Tensor&>(inner->GetMessage(*holder, field)),
        elements, builder);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ReadOptions(const v1::AttendRequest& message,
                         RequestBuilder& builder) {
  const pb::Reflection& reflection = *message.GetReflection();
  for (const auto& [option, field] : Paths().options) {
    if (!reflection.HasField(message, field)) continue;
    absl::Status status =
        builder.SetOption(*option, ValueOf(message, *field, *option));
    if (!status.ok()) return status;
  }
  const pb::FieldDescriptor* const scoring = ScoringField(message);
  if (scoring == nullptr) return absl::OkStatus();
  const pb::Message& inner = reflection.GetMessage(message, scoring);
  for (int n = 0; n < scoring->message_type()->field_count(); ++n) {
    const pb::FieldDescriptor& field = *scoring->message_type()->field(n);
    const OptionField* const option = FindOption(field.name());
    if (option == nullptr || !inner.GetReflection()->HasField(inner, &field)) {
      continue;
    }
    absl::Status status =
        builder.SetOption(*option, ValueOf(inner, field, *option),
                          absl::StrCat(scoring->name(), ".", field.name()));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

bool ChosenScoring(const v1::AttendRequest& message, Scoring& scoring) {
  const pb::FieldDescriptor* const field = ScoringField(message);
  if (field == nullptr) return false;
  for (const ScoringName& name : ScoringNames()) {
    if (name.name != field->name()) continue;
    scoring = name.scoring;
    return true;
  }
  return false;
}

}  // namespace attention::server
