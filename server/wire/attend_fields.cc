#include "server/wire/attend_fields.h"

#include <google/protobuf/descriptor.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "server/request/option_fields.h"
#include "server/request/scoring_names.h"
#include "server/wire/data_types.h"

namespace attention::server {
namespace {

namespace pb = google::protobuf;

// What a field of a message is: looked up by name once, not for every request.
struct FieldPlan {
  const pb::FieldDescriptor* field = nullptr;
  const pb::Reflection* reflection = nullptr;  // of the message that has it
  size_t place = 0;                            // SplitRules::PlaceOf()
  const TensorField* tensor = nullptr;
  const OptionField* option = nullptr;
  const pb::Message* absent = nullptr;  // what stands for a message not there
  std::string name;                // of the option, with that of its scoring
  std::vector<FieldPlan> members;  // of a message with such fields
};

const pb::Message& PrototypeOf(const pb::Descriptor& message) {
  return *pb::MessageFactory::generated_factory()->GetPrototype(&message);
}

// Of the fields that are read, in the order of their numbers.
std::vector<FieldPlan> PlansOf(const pb::Descriptor& message,
                               const std::string& prefix) {
  std::vector<FieldPlan> plans;
  const pb::Reflection* const reflection = PrototypeOf(message).GetReflection();
  for (int n = 0; n < message.field_count(); ++n) {
    const pb::FieldDescriptor& field = *message.field(n);
    FieldPlan plan;
    const pb::Descriptor* const inner = field.message_type();
    if (inner != nullptr) plan.absent = &PrototypeOf(*inner);
    if (inner == v1::Tensor::descriptor()) {
      plan.tensor = FindTensor(field.name());
    } else if (inner != nullptr && !field.is_repeated()) {
      plan.members = PlansOf(*inner, absl::StrCat(field.name(), "."));
    } else if (inner == nullptr) {
      plan.option = FindOption(field.name());
      plan.name = absl::StrCat(prefix, field.name());
    }
    if (plan.tensor != nullptr || plan.option != nullptr ||
        !plan.members.empty()) {
      plan.field = &field;
      plan.reflection = reflection;
      plan.place = AttendRules().PlaceOf(field);
      plans.push_back(std::move(plan));
    }
  }
  absl::c_sort(plans, [](const FieldPlan& a, const FieldPlan& b) {
    return a.field->number() < b.field->number();
  });
  return plans;
}

absl::Status ReadTensor(const TensorField& field, const v1::Tensor& tensor,
                        MessageElements& elements, RequestBuilder& builder) {
  const absl::StatusOr<DataType> type =
      DataTypeOf(field.name, tensor, field.types);
  if (!type.ok()) return type.status();
  TensorBytes* const bytes = elements.Find(tensor.data());
  if (bytes == nullptr) {
    return builder.SetTensor(field, *type, tensor.shape(),
                             absl::Span<const std::byte>());
  }
  if (field.read_first) bytes->Gather();
  return builder.SetTensor(field, *type, tensor.shape(), bytes->bytes());
}

OptionValue ValueOf(const pb::Message& message, const FieldPlan& plan) {
  const pb::Reflection& reflection = *plan.reflection;
  const pb::FieldDescriptor& field = *plan.field;
  const OptionField& option = *plan.option;
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

absl::Status ReadMembers(const pb::Message& message,
                         const std::vector<FieldPlan>& plans,
                         MessageElements& elements, RequestBuilder& builder);

// Reads the field if the message has it.
absl::Status ReadField(const pb::Message& message, const FieldPlan& plan,
                       MessageElements& elements, RequestBuilder& builder) {
  if (plan.option != nullptr) {
    if (!plan.reflection->HasField(message, plan.field)) {
      return absl::OkStatus();
    }
    return builder.SetOption(*plan.option, ValueOf(message, plan), plan.name);
  }
  // Asking whether it is there would cost as much again.
  const pb::Message& inner = plan.reflection->GetMessage(message, plan.field);
  if (&inner == plan.absent) return absl::OkStatus();
  if (plan.tensor == nullptr) {
    return ReadMembers(inner, plan.members, elements, builder);
  }
  return ReadTensor(*plan.tensor, static_cast<const v1::Tensor&>(inner),
                    elements, builder);
}

// To ask protobuf for each of some thirty fields takes longer than to read
// those of most requests.
absl::Status ReadMembers(const pb::Message& message,
                         const std::vector<FieldPlan>& plans,
                         MessageElements& elements, RequestBuilder& builder) {
  for (const FieldPlan& plan : plans) {
    if (!elements.MayHave(plan.place)) continue;
    absl::Status status = ReadField(message, plan, elements, builder);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// The field that the message's scoring is; null where it has none.
const pb::FieldDescriptor* ScoringField(const v1::AttendRequest& message) {
  static const pb::OneofDescriptor* const oneof =
      v1::AttendRequest::descriptor()->FindOneofByName("scoring");
  static const pb::Reflection& reflection = *message.GetReflection();
  return reflection.GetOneofFieldDescriptor(message, oneof);
}

}  // namespace

const SplitRules& AttendRules() {
  static const auto* const rules =
      new SplitRules{*v1::AttendRequest::descriptor(),
                     {v1::Tensor::descriptor()->FindFieldByNumber(
                         v1::Tensor::kDataFieldNumber)}};
  return *rules;
}

absl::Status ReadFields(const v1::AttendRequest& message,
                        MessageElements& elements, RequestBuilder& builder) {
  static const auto* const plans =
      new std::vector<FieldPlan>(PlansOf(*v1::AttendRequest::descriptor(), ""));
  return ReadMembers(message, *plans, elements, builder);
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
