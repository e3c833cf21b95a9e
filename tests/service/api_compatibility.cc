#include "tests/service/api_compatibility.h"

#include "absl/strings/str_cat.h"

namespace attention::test {
namespace {

namespace pb = google::protobuf;

class Comparison {
 public:
  std::vector<std::string> breakages;

  void CompareFiles(const pb::FileDescriptorProto& baseline,
                    const pb::FileDescriptorProto& current) {
    Same(baseline.package(), "package", baseline.package(), current.package());
    Same(baseline.package(), "syntax", baseline.syntax(), current.syntax());
    const std::string& scope = baseline.package();
    ForEach(scope, baseline.message_type(), current.message_type(),
            &Comparison::CompareMessages);
    ForEach(scope, baseline.enum_type(), current.enum_type(),
            &Comparison::CompareEnums);
    ForEach(scope, baseline.service(), current.service(),
            &Comparison::CompareServices);
  }

 private:
  // Calls compare(name, one of baseline, that of the same name in current).
  template <typename List, typename Element>
  void ForEach(const std::string& scope, const List& baseline,
               const List& current,
               void (Comparison::*compare)(const std::string&, const Element&,
                                           const Element&)) {
    for (const auto& old : baseline) {
      const std::string name = absl::StrCat(scope, ".", old.name());
      const auto* found = Find(current, old.name());
      if (found == nullptr) {
        breakages.push_back(absl::StrCat(name, ": is gone or renamed"));
      } else {
        (this->*compare)(name, old, *found);
      }
    }
  }

  template <typename List>
  static const typename List::value_type* Find(const List& list,
                                               const std::string& name) {
    for (const auto& element : list) {
      if (element.name() == name) return &element;
    }
    return nullptr;
  }

  template <typename T>
  void Same(const std::string& name, const char* what, const T& old,
            const T& now) {
    if (old == now) return;
    breakages.push_back(absl::StrCat(name, ": has ", what, " ", old,
                                     " in the baseline, ", now, " now"));
  }

  void CompareMessages(const std::string& name, const pb::DescriptorProto& old,
                       const pb::DescriptorProto& now) {
    for (const pb::FieldDescriptorProto& field : old.field()) {
      const std::string field_name = absl::StrCat(name, ".", field.name());
      const auto* found = Find(now.field(), field.name());
      if (found == nullptr) {
        breakages.push_back(absl::StrCat(field_name, ": is gone or renamed"));
        continue;
      }
      CompareFields(field_name, field, *found);
      Same(field_name, "oneof", OneofName(old, field), OneofName(now, *found));
    }
    ForEach(name, old.nested_type(), now.nested_type(),
            &Comparison::CompareMessages);
    ForEach(name, old.enum_type(), now.enum_type(), &Comparison::CompareEnums);
  }

  static std::string OneofName(const pb::DescriptorProto& message,
                               const pb::FieldDescriptorProto& field) {
    return field.has_oneof_index()
               ? message.oneof_decl(field.oneof_index()).name()
               : "(none)";
  }

  void CompareFields(const std::string& name,
                     const pb::FieldDescriptorProto& old,
                     const pb::FieldDescriptorProto& now) {
    Same(name, "number", old.number(), now.number());
    Same(name, "type", pb::FieldDescriptorProto::Type_Name(old.type()),
         pb::FieldDescriptorProto::Type_Name(now.type()));
    Same(name, "type", old.type_name(), now.type_name());
    Same(name, "label", pb::FieldDescriptorProto::Label_Name(old.label()),
         pb::FieldDescriptorProto::Label_Name(now.label()));
    Same(name, "presence (optional)", old.proto3_optional(),
         now.proto3_optional());
    Same(name, "JSON name", old.json_name(), now.json_name());
  }

  void CompareEnums(const std::string& name, const pb::EnumDescriptorProto& old,
                    const pb::EnumDescriptorProto& now) {
    for (const pb::EnumValueDescriptorProto& value : old.value()) {
      const std::string value_name = absl::StrCat(name, ".", value.name());
      const auto* found = Find(now.value(), value.name());
      if (found == nullptr) {
        breakages.push_back(absl::StrCat(value_name, ": is gone or renamed"));
      } else {
        Same(value_name, "number", value.number(), found->number());
      }
    }
  }

  void CompareServices(const std::string& name,
                       const pb::ServiceDescriptorProto& old,
                       const pb::ServiceDescriptorProto& now) {
    ForEach(name, old.method(), now.method(), &Comparison::CompareMethods);
  }

  void CompareMethods(const std::string& name,
                      const pb::MethodDescriptorProto& old,
                      const pb::MethodDescriptorProto& now) {
    Same(name, "request", old.input_type(), now.input_type());
    Same(name, "reply", old.output_type(), now.output_type());
    Same(name, "a stream of requests", old.client_streaming(),
         now.client_streaming());
    Same(name, "a stream of replies", old.server_streaming(),
         now.server_streaming());
  }
};

}  // namespace

std::vector<std::string> Breakages(const pb::FileDescriptorProto& baseline,
                                   const pb::FileDescriptorProto& current) {
  Comparison comparison;
  comparison.CompareFiles(baseline, current);
  return comparison.breakages;
}

}  // namespace attention::test
