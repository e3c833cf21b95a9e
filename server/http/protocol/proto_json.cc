#include "server/http/protocol/proto_json.h"

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/base/json.h"

namespace attention::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Objects and arrays of a request, within one another.
constexpr int kDeepest = 4;

// A field's value; of a repeated field, the one at `i`.
OrderedJson Value(const Message& message, const FieldDescriptor& field,
                  int i = 0) {
  const auto& from = *message.GetReflection();
// Protobuf has a function for each type, and another for repeated ones.
#define ATTENTION_VALUE(name)                                       \
  (field.is_repeated() ? from.GetRepeated##name(message, &field, i) \
                       : from.Get##name(message, &field))
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return ATTENTION_VALUE(Bool);
    case FieldDescriptor::CPPTYPE_INT32:
      return ATTENTION_VALUE(Int32);
    case FieldDescriptor::CPPTYPE_INT64:
      return ATTENTION_VALUE(Int64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return ATTENTION_VALUE(UInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return ATTENTION_VALUE(UInt64);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return ATTENTION_VALUE(Float);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return ATTENTION_VALUE(Double);
    case FieldDescriptor::CPPTYPE_STRING:
      return ATTENTION_VALUE(String);
    case FieldDescriptor::CPPTYPE_ENUM:
      return ATTENTION_VALUE(Enum)->name();
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(ATTENTION_VALUE(Message));
  }
#undef ATTENTION_VALUE
  return nullptr;
}

// Entries' keys are strings in all of the protocol's maps.
OrderedJson Map(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  OrderedJson map = OrderedJson::object();
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    const auto& type = *entry.GetDescriptor();
    map[entry.GetReflection()->GetString(entry, type.map_key())] =
        Value(entry, *type.map_value());
  }
  return map;
}

// Of the types that requests have.
absl::Status SetField(Message& message, const FieldDescriptor& field,
                      const Json& value) {
  const auto& to = *message.GetReflection();
  const std::string& key = field.name();
  if (field.is_map()) {
    if (!value.is_object()) return WrongValue(key, value, "an object");
    for (const auto& [name, unread] : value.items()) {
      Message& entry = *to.AddMessage(&message, &field);
      entry.GetReflection()->SetString(&entry, entry.GetDescriptor()->map_key(),
                                       name);
    }
  } else if (field.type() == FieldDescriptor::TYPE_BYTES) {
    std::string bytes;
    if (!value.is_object() || !value.contains("b64") ||
        !value["b64"].is_string() ||
        !absl::Base64Unescape(value["b64"].get<std::string>(), &bytes)) {
      return WrongValue(key, value, "{\"b64\": BASE64}");
    }
    to.SetString(&message, &field, std::move(bytes));
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    if (!value.is_string()) return WrongValue(key, value, "a string");
    to.SetString(&message, &field, value.get<std::string>());
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
    if (!value.is_boolean()) return WrongValue(key, value, "true or false");
    to.SetBool(&message, &field, value.get<bool>());
  } else {
    const bool is_signed = field.cpp_type() == FieldDescriptor::CPPTYPE_INT64;
    const uint64_t most = is_signed ? std::numeric_limits<int64_t>::max()
                                    : std::numeric_limits<uint64_t>::max();
    if (!value.is_number_unsigned() || value.get<uint64_t>() > most) {
      return WrongValue(key, value, absl::StrCat("an integer of 0 to ", most));
    }
    if (is_signed) {
      to.SetInt64(&message, &field, value.get<int64_t>());
    } else {
      to.SetUInt64(&message, &field, value.get<uint64_t>());
    }
  }
  return absl::OkStatus();
}

}  // namespace

OrderedJson ToJson(const Message& message) {
  const auto& reflection = *message.GetReflection();
  const auto& type = *message.GetDescriptor();
  OrderedJson json = OrderedJson::object();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.is_map()) {
      json[field.name()] = Map(message, field);
    } else if (field.is_repeated()) {
      OrderedJson& list = json[field.name()] = OrderedJson::array();
      for (int k = 0; k < reflection.FieldSize(message, &field); ++k) {
        list.push_back(Value(message, field, k));
      }
    } else if (!field.has_presence() || reflection.HasField(message, &field)) {
      json[field.name()] = Value(message, field);
    }
  }
  return json;
}

absl::Status ReadFields(absl::string_view body,
                        const std::vector<std::string>& known,
                        Message& message) {
  if (known.empty() || body.empty()) return absl::OkStatus();
  absl::StatusOr<Json> json = ParseStrictJson(body, kDeepest);
  if (!json.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("body: ", json.status().message()));
  }
  const auto& type = *message.GetDescriptor();
  if (known.front() == kAllSettings) {
    return SetField(message, *type.FindFieldByName("settings"), *json);
  }
  if (absl::Status keys = CheckKeys("", *json, known); !keys.ok()) return keys;
  for (const auto& [key, value] : json->items()) {
    absl::Status set = SetField(message, *type.FindFieldByName(key), value);
    if (!set.ok()) return set;
  }
  return absl::OkStatus();
}

}  // namespace attention::server
