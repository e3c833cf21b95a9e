// The tables of tensors and options against attention.proto: a field that one
// of them has and the other has not would be dropped in silence.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "attention/v1/attention.pb.h"
#include "server/request/option_fields.h"
#include "server/request/request_builder.h"
#include "server/request/scoring_names.h"
#include "server/request/tensor_fields.h"
#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

namespace pb = google::protobuf;
using ::attention::test::IsOk;
using ::attention::test::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalidField = absl::StatusCode::kInvalidArgument;

// Fields of AttendRequest that are neither a tensor nor an option.
const std::set<std::string> kOthers = {"id",
                                       "name",
                                       "layer",
                                       "position",
                                       "return_weights",
                                       "return_lse",
                                       "return_key_weights"};

// Every field of AttendRequest and of the messages in it, by name.
void Collect(const pb::Descriptor& message, std::set<std::string>& tensors,
             std::set<std::string>& scalars) {
  for (int n = 0; n < message.field_count(); ++n) {
    const pb::FieldDescriptor& field = *message.field(n);
    if (field.message_type() == v1::Tensor::descriptor()) {
      tensors.insert(field.name());
    } else if (field.message_type() != nullptr) {
      Collect(*field.message_type(), tensors, scalars);
    } else if (kOthers.count(field.name()) == 0) {
      scalars.insert(field.name());
    }
  }
}

TEST(RequestFields, AreThoseOfAttendRequest) {
  std::set<std::string> tensors;
  std::set<std::string> scalars;
  Collect(*v1::AttendRequest::descriptor(), tensors, scalars);
  std::set<std::string> known_tensors;
  for (const TensorField& tensor : TensorFields()) {
    EXPECT_TRUE(known_tensors.emplace(tensor.name).second) << tensor.name;
  }
  std::set<std::string> known_options;
  for (const OptionField& option : OptionFields()) {
    EXPECT_TRUE(known_options.emplace(option.name).second) << option.name;
  }
  EXPECT_EQ(tensors, known_tensors);
  EXPECT_EQ(scalars, known_options);
}

pb::FieldDescriptor::CppType CppTypeOf(OptionType type) {
  switch (type) {
    case OptionType::kNumber:
      return pb::FieldDescriptor::CPPTYPE_DOUBLE;
    case OptionType::kInteger:
      return pb::FieldDescriptor::CPPTYPE_INT64;
    case OptionType::kUnsigned:
      return pb::FieldDescriptor::CPPTYPE_UINT64;
    case OptionType::kBool:
      return pb::FieldDescriptor::CPPTYPE_BOOL;
    case OptionType::kWord:
      break;
  }
  return pb::FieldDescriptor::CPPTYPE_ENUM;
}

TEST(RequestFields, HaveTheTypesOfAttendRequest) {
  int compared = 0;
  for (const OptionField& option : OptionFields()) {
    const pb::FieldDescriptor* field =
        v1::AttendRequest::descriptor()->FindFieldByName(
            static_cast<std::string>(option.name));
    if (field == nullptr) continue;  // of a scoring function
    ++compared;
    EXPECT_EQ(field->cpp_type(), CppTypeOf(option.type)) << option.name;
    EXPECT_TRUE(field->has_presence()) << option.name;
  }
  EXPECT_GT(compared, 10);
}

TEST(RequestFields, HaveTheWordsOfAttendRequestInTheirOrder) {
  for (const OptionField& option : OptionFields()) {
    if (option.type != OptionType::kWord) continue;
    const pb::EnumDescriptor& words =
        *v1::AttendRequest::descriptor()
             ->FindFieldByName(static_cast<std::string>(option.name))
             ->enum_type();
    ASSERT_EQ(words.value_count(), static_cast<int>(option.words.size()));
    for (int n = 0; n < words.value_count(); ++n) {
      EXPECT_EQ(words.value(n)->number(), n);
      EXPECT_TRUE(absl::EndsWith(words.value(n)->name(),
                                 absl::AsciiStrToUpper(option.words[n])))
          << words.value(n)->name();
    }
  }
}

TEST(RequestFields, HaveTheScoringFunctionsOfAttendRequest) {
  const pb::OneofDescriptor& scoring =
      *v1::AttendRequest::descriptor()->FindOneofByName("scoring");
  std::set<std::string> names;
  for (int n = 0; n < scoring.field_count(); ++n) {
    names.insert(scoring.field(n)->name());
  }
  std::set<std::string> known = {"parameter_set"};
  for (const ScoringName& name : ScoringNames()) known.emplace(name.name);
  EXPECT_EQ(names, known);
}

TEST(RequestFields, NameEveryScoringFunctionOfCoreInItsOrder) {
  ASSERT_EQ(ScoringNames().size(), std::variant_size_v<Scoring>);
  for (size_t n = 0; n < ScoringNames().size(); ++n) {
    EXPECT_EQ(ScoringNames()[n].scoring.index(), n);
  }
}

template <typename Function>
AttentionProblem With() {
  AttentionProblem problem;
  problem.scoring.emplace<Function>();
  return problem;
}

TEST(RequestBuilder, NamesAnOptionOfAnotherScoringFunction) {
  RequestBuilder builder(With<Additive>());
  EXPECT_THAT(builder.SetOption(*FindOption("sigma"), 2.0),
              StatusIs(kInvalidField,
                       "sigma: this scoring function has none (Gaussian has)"));
}

TEST(RequestBuilder, TakesNumbersInEveryForm) {
  for (const OptionValue& value :
       {OptionValue(2.0), OptionValue(int64_t{2}), OptionValue(uint64_t{2}),
        OptionValue(std::string("2"))}) {
    RequestBuilder builder(AttentionProblem{});
    EXPECT_THAT(builder.SetOption(*FindOption("softcap"), value), IsOk());
    EXPECT_THAT(builder.SetOption(*FindOption("seed"), value), IsOk());
    EXPECT_THAT(builder.SetOption(*FindOption("key_offset"), value), IsOk());
  }
}

TEST(RequestBuilder, SaysWhatAValueIsInstead) {
  RequestBuilder builder(AttentionProblem{});
  const auto refuses = [&](const char* name, const OptionValue& value,
                           const char* message) {
    EXPECT_THAT(builder.SetOption(*FindOption(name), value),
                StatusIs(kInvalidField, HasSubstr(message)));
  };
  refuses("softcap", true, "softcap: true (expected a number)");
  refuses("softcap", OptionValue(), "softcap: no value (expected a number)");
  refuses("window_left", 1.5, "1.5 (expected a whole number of 64 bits)");
  refuses("seed", int64_t{-1}, "-1 (expected a whole number from 0");
  refuses("training", std::string("maybe"), "'maybe' (expected true or false)");
  refuses("causal", std::string("both"),
          "'both' (expected 'none', 'top_left', 'bottom_right')");
}

TEST(RequestBuilder, RefusesATensorThatComesTwice) {
  RequestBuilder builder(AttentionProblem{});
  const TensorField& query = *builder.Accepted("query");
  const std::byte bytes[4] = {};
  EXPECT_THAT(builder.SetTensor(query, DataType::kFloat32, {1, 1}, bytes),
              IsOk());
  EXPECT_THAT(builder.SetTensor(query, DataType::kFloat32, {1, 1}, bytes),
              StatusIs(kInvalidField, "query: given twice"));
}

TEST(RequestBuilder, RefusesAResultThatComesTwice) {
  RequestBuilder builder(AttentionProblem{});
  EXPECT_THAT(builder.AddResult({ResultField::kLse}), IsOk());
  EXPECT_THAT(builder.AddResult({ResultField::kLse}),
              StatusIs(kInvalidField, "lse: asked for twice"));
}

TEST(RequestBuilder, AcceptsTheTensorsOfItsScoringFunctionAlone) {
  RequestBuilder dot(AttentionProblem{});
  EXPECT_EQ(dot.Accepted("m"), nullptr);
  EXPECT_EQ(dot.Accepted("Query"), nullptr);
  RequestBuilder bilinear(With<Bilinear>());
  EXPECT_NE(bilinear.Accepted("m"), nullptr);
}

}  // namespace
}  // namespace attention::server
