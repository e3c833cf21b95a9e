#include "server/http/proto_json.h"

#include <google/protobuf/descriptor.h>

#include <string>

namespace attention::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Json = nlohmann::ordered_json;

// A field's value; of a repeated field, the one at `i`.
Json Value(const Message& message, const FieldDescriptor& field, int i = 0) {
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
Json Map(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  Json map = Json::object();
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    const auto& type = *entry.GetDescriptor();
    map[entry.GetReflection()->GetString(entry, type.map_key())] =
        Value(entry, *type.map_value());
  }
  return map;
}

}  // namespace

Json ToJson(const Message& message) {
  const auto& reflection = *message.GetReflection();
  const auto& type = *message.GetDescriptor();
  Json json = Json::object();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.is_map()) {
      json[field.name()] = Map(message, field);
    } else if (field.is_repeated()) {
      Json& list = json[field.name()] = Json::array();
      for (int k = 0; k < reflection.FieldSize(message, &field); ++k) {
        list.push_back(Value(message, field, k));
      }
    } else if (!field.has_presence() || reflection.HasField(message, &field)) {
      json[field.name()] = Value(message, field);
    }
  }
  return json;
}

}  // namespace attention::server
