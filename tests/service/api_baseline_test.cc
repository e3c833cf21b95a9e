// The API as it is in proto/baseline must still be there: callers were built
// against it. Whoever adds to the API makes a new baseline with
// proto/baseline/update; nothing is ever taken out of it.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention/v1/attention.pb.h"
#include "core/formats/file.h"
#include "tests/service/api_compatibility.h"

namespace attention::test {
namespace {

namespace pb = google::protobuf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

pb::FileDescriptorProto Baseline() {
  pb::FileDescriptorSet set;
  EXPECT_TRUE(set.ParseFromString(ReadFile(ATTENTION_API_BASELINE).value()));
  EXPECT_EQ(set.file_size(), 1);
  return set.file(0);
}

// As protoc describes it, with the names that JSON gives to fields.
pb::FileDescriptorProto Current() {
  pb::FileDescriptorProto current;
  v1::AttendRequest::descriptor()->file()->CopyTo(&current);
  v1::AttendRequest::descriptor()->file()->CopyJsonNameTo(&current);
  return current;
}

TEST(ApiBaselineTest, EverythingInItIsStillThere) {
  EXPECT_THAT(Breakages(Baseline(), Current()), IsEmpty());
}

TEST(ApiBaselineTest, ItIsUpToDate) {
  EXPECT_THAT(Breakages(Current(), Baseline()), IsEmpty())
      << "the API has grown: run proto/baseline/update and commit the result";
}

// A change to the API, and the one breakage that it must be called.
struct Change {
  const char* name;
  std::function<void(pb::FileDescriptorProto&)> make;
  const char* breakage;
};

class ApiChangeTest : public testing::TestWithParam<Change> {};

TEST_P(ApiChangeTest, IsReportedByName) {
  pb::FileDescriptorProto changed = Current();
  GetParam().make(changed);
  EXPECT_THAT(Breakages(Current(), changed),
              ElementsAre(HasSubstr(GetParam().breakage)));
}

template <typename List>
auto& Named(List* list, const std::string& name) {
  for (auto& element : *list) {
    if (element.name() == name) return element;
  }
  throw std::out_of_range(name);  // the test names what is not there
}
pb::DescriptorProto& Request(pb::FileDescriptorProto& file) {
  return Named(file.mutable_message_type(), "AttendRequest");
}
pb::FieldDescriptorProto& Softcap(pb::FileDescriptorProto& file) {
  return Named(Request(file).mutable_field(), "softcap");
}
pb::MethodDescriptorProto& Method(pb::FileDescriptorProto& file,
                                  const std::string& name) {
  return Named(file.mutable_service(0)->mutable_method(), name);
}

INSTANTIATE_TEST_SUITE_P(
    All, ApiChangeTest,
    testing::ValuesIn(std::vector<Change>{
        {"FieldRemoved",
         [](auto& file) {
           auto& fields = *Request(file).mutable_field();
           for (int i = 0; i < fields.size(); ++i) {
             if (fields[i].name() == "softcap") fields.DeleteSubrange(i, 1);
           }
         },
         "attention.v1.AttendRequest.softcap: is gone or renamed"},
        {"FieldRenamed", [](auto& file) { Softcap(file).set_name("soft_cap"); },
         "attention.v1.AttendRequest.softcap: is gone or renamed"},
        {"FieldRenumbered", [](auto& file) { Softcap(file).set_number(99); },
         "attention.v1.AttendRequest.softcap: has number 9 in the baseline, "
         "99 now"},
        {"FieldRetyped",
         [](auto& file) {
           Softcap(file).set_type(pb::FieldDescriptorProto::TYPE_FLOAT);
         },
         "softcap: has type TYPE_DOUBLE in the baseline, TYPE_FLOAT now"},
        {"FieldOfAnotherMessage",
         [](auto& file) {
           Named(Request(file).mutable_field(), "bias")
               .set_type_name(".attention.v1.Bilinear");
         },
         "bias: has type .attention.v1.Tensor"},
        {"FieldNotOptionalAnyMore",
         [](auto& file) { Softcap(file).set_proto3_optional(false); },
         "softcap: has presence (optional)"},
        {"FieldRepeated",
         [](auto& file) {
           Softcap(file).set_label(pb::FieldDescriptorProto::LABEL_REPEATED);
         },
         "softcap: has label LABEL_OPTIONAL"},
        {"OneofMember",
         [](auto& file) {
           Named(Request(file).mutable_field(), "gaussian").clear_oneof_index();
         },
         "gaussian: has oneof scoring in the baseline, (none) now"},
        {"MessageRenamed",
         [](auto& file) {
           Named(file.mutable_message_type(), "Gaussian").set_name("Normal");
         },
         "attention.v1.Gaussian: is gone or renamed"},
        {"EnumValueRenumbered",
         [](auto& file) {
           Named(Named(file.mutable_enum_type(), "Causal").mutable_value(),
                 "CAUSAL_TOP_LEFT")
               .set_number(5);
         },
         "attention.v1.Causal.CAUSAL_TOP_LEFT: has number 1"},
        {"EnumValueRenamed",
         [](auto& file) {
           Named(Named(file.mutable_enum_type(), "DataType").mutable_value(),
                 "DATA_TYPE_FP16")
               .set_name("DATA_TYPE_HALF");
         },
         "attention.v1.DataType.DATA_TYPE_FP16: is gone or renamed"},
        {"MethodRenamed",
         [](auto& file) { Method(file, "Attend").set_name("Compute"); },
         "attention.v1.AttentionService.Attend: is gone or renamed"},
        {"MethodWithAnotherReply",
         [](auto& file) {
           Method(file, "Attend").set_output_type(".attention.v1.Tensor");
         },
         "AttentionService.Attend: has reply .attention.v1.AttendResponse"},
        {"MethodNotAStreamAnyMore",
         [](auto& file) {
           Method(file, "AttendStream").set_client_streaming(false);
         },
         "AttentionService.AttendStream: has a stream of requests"},
    }),
    [](const auto& row) { return row.param.name; });

TEST(ApiChangeTest, AdditionsBreakNothing) {
  pb::FileDescriptorProto changed = Current();
  auto& field = *Request(changed).add_field();
  field.set_name("new");
  field.set_number(100);
  changed.add_message_type()->set_name("New");
  changed.mutable_service(0)->add_method()->set_name("New");
  EXPECT_THAT(Breakages(Current(), changed), IsEmpty());
}

}  // namespace
}  // namespace attention::test
