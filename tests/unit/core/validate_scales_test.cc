// Keys and values of another type than the query's, and their scales.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/batch.h"
#include "core/validate.h"
#include "tests/support/special_numbers.h"
#include "tests/unit/core/problem_builder.h"

namespace attention {
namespace {

using test::kFloatInfinity;
using test::kFloatNan;
using ::testing::ElementsAre;
using testing::ProblemBuilder;

KeyValueBlock& Block(ProblemBuilder& b) { return b.problem.key_value[0]; }

// Keys [2, 2, 5, 8] and values [2, 2, 5, 6] of INT8, under FP32.
ProblemBuilder Quantized(DataType type = DataType::kInt8) {
  ProblemBuilder b;
  Block(b) = {.key = b.Zeros(type, {2, 2, 5, 8}),
              .value = b.Zeros(type, {2, 2, 5, 6}),
              .key_scale = b.Zeros(DataType::kFloat32, {2, 2, 5}),
              .value_scale = b.Zeros(DataType::kFloat32, {2, 2, 5})};
  return b;
}

struct BadScales {
  std::string name;
  std::function<void(ProblemBuilder&)> spoil;
  std::string message;
};

class BadScalesTest : public ::testing::TestWithParam<BadScales> {};

TEST_P(BadScalesTest, AreNamedWithWhatTheyHadAndWhatWasExpected) {
  ProblemBuilder builder = Quantized();
  ASSERT_TRUE(Validate(builder.problem).ok());
  GetParam().spoil(builder);
  const absl::Status status = Validate(builder.problem).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), GetParam().message);
}

// Of 20 scales, number `index` is `scale`.
TensorView WithScale(ProblemBuilder& b, int index, float scale) {
  std::vector<float> scales(20, 0.5F);
  scales[static_cast<size_t>(index)] = scale;
  return b.Floats({2, 2, 5}, scales);
}

INSTANTIATE_TEST_SUITE_P(
    Scales, BadScalesTest,
    ::testing::ValuesIn(std::vector<BadScales>{
        {"KeysWithoutThem",
         [](ProblemBuilder& b) { Block(b).key_scale.reset(); },
         "key_scale: missing (each row of INT8 has one)"},
        {"ValuesWithoutThem",
         [](ProblemBuilder& b) { Block(b).value_scale.reset(); },
         "value_scale: missing (each row of INT8 has one)"},
        {"KeysOfATypeWithoutThem",
         [](ProblemBuilder& b) {
           Block(b).key = b.Zeros(DataType::kBFloat16, {2, 2, 5, 8});
           Block(b).value = b.Zeros(DataType::kBFloat16, {2, 2, 5, 6});
         },
         "key_scale: was given beside BF16, which has none (leave it out)"},
        {"OfHalfPrecision",
         [](ProblemBuilder& b) {
           Block(b).value_scale = b.Zeros(DataType::kFloat16, {2, 2, 5});
         },
         "value_scale: datatype FP16 (expected FP32)"},
        {"OfWrongShape",
         [](ProblemBuilder& b) {
           Block(b).key_scale = b.Zeros(DataType::kFloat32, {2, 2, 5, 1});
         },
         "key_scale: shape [2, 2, 5, 1] (expected [2, 2, 5], one for each "
         "row)"},
        {"OnADevice",
         [](ProblemBuilder& b) {
           Block(b).key_scale->space = MemorySpace::kCudaDevice;
         },
         "key_scale: lies in device memory (host memory is expected)"},
        {"OfNan",
         [](ProblemBuilder& b) {
           Block(b).key_scale = WithScale(b, 0, kFloatNan);
         },
         "key_scale: nan for row 0 of head 0 of batch entry 0 (expected a "
         "finite number, 0 or more)"},
        {"OfInfinity",
         [](ProblemBuilder& b) {
           Block(b).value_scale = WithScale(b, 19, kFloatInfinity);
         },
         "value_scale: inf for row 4 of head 1 of batch entry 1 (expected a "
         "finite number, 0 or more)"},
        {"Negative",
         [](ProblemBuilder& b) { Block(b).key_scale = WithScale(b, 7, -2); },
         "key_scale: -2 for row 2 of head 1 of batch entry 0 (expected a "
         "finite number, 0 or more)"},
        {"OfSecondBlock",
         [](ProblemBuilder& b) {
           b.problem.key_value.push_back(Block(b));
           b.problem.key_value[1].value_scale.reset();
         },
         "value_scale[1]: missing (each row of INT8 has one)"},
        {"NegativeInASecondBlockLikeTheFirst",
         [](ProblemBuilder& b) {
           b.problem.key_value.push_back(Block(b));
           b.problem.key_value[1].value_scale = WithScale(b, 7, -2);
         },
         "value_scale[1]: -2 for row 2 of head 1 of batch entry 0 (expected a "
         "finite number, 0 or more)"},
    }),
    [](const auto& test) { return test.param.name; });

TEST(ScalesTest, AnywhereInARowAreHeldToTheRange) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  ProblemBuilder builder = Quantized();
  for (int index = 0; index < 20; ++index) {
    for (const float scale : {kLargest, kLeast, 0.0F, -0.0F}) {
      Block(builder).key_scale = WithScale(builder, index, scale);
      EXPECT_TRUE(Validate(builder.problem).ok()) << index << ": " << scale;
    }
    for (const float scale :
         {-kLargest, -kLeast, -kFloatNan, kFloatNan, -kFloatInfinity}) {
      Block(builder).key_scale = WithScale(builder, index, scale);
      EXPECT_FALSE(Validate(builder.problem).ok()) << index << ": " << scale;
    }
  }
}

// Not side by side, they are looked at one by one.
TEST(ScalesTest, OfAnyStridesAreChecked) {
  ProblemBuilder builder = Quantized();
  TensorView scales = WithScale(builder, 13, -1);
  scales.strides[2] = 0;
  Block(builder).key_scale = scales;
  EXPECT_TRUE(Validate(builder.problem).ok());
  scales.data += 3 * sizeof(float);
  Block(builder).key_scale = scales;
  EXPECT_EQ(Validate(builder.problem).status().message(),
            "key_scale: -1 for row 0 of head 0 of batch entry 1 (expected a "
            "finite number, 0 or more)");
}

// For each batch entry anew it would take hours.
TEST(ScalesTest, ThatAreRepeatedAreLookedAtOnce) {
  constexpr int64_t kEntries = int64_t{1} << 40;
  ProblemBuilder builder = Quantized();
  const auto repeat = [](TensorView& view) {
    view.shape[0] = kEntries;
    view.strides[0] = 0;
  };
  repeat(builder.problem.query);
  repeat(Block(builder).key);
  repeat(Block(builder).value);
  repeat(*Block(builder).key_scale);
  repeat(*Block(builder).value_scale);
  const absl::Status status = Validate(builder.problem).status();
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ScalesTest, HaveTheExtentsThatKeysHave) {
  ProblemBuilder four = Quantized(DataType::kFloat8);
  const auto valid = Validate(four.problem);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_EQ(valid->key_type, DataType::kFloat8);
  EXPECT_EQ(valid->query.type, DataType::kFloat32);
  EXPECT_THAT(valid->key_value[0].key_scale->shape, ElementsAre(2, 2, 5));

  for (const bool batch : {true, false}) {
    const auto shape = [batch](int64_t length, int64_t width) {
      return batch ? Shape{3, length, width} : Shape{length, width};
    };
    const Shape scales = batch ? Shape{3, 4} : Shape{4};
    ProblemBuilder b(shape(2, 8), shape(4, 8), shape(4, 6));
    Block(b) = {.key = b.Zeros(DataType::kInt8, shape(4, 8)),
                .value = b.Zeros(DataType::kInt8, shape(4, 6)),
                .key_scale = b.Zeros(DataType::kFloat32, scales),
                .value_scale = b.Zeros(DataType::kFloat32, scales)};
    const auto narrow = Validate(b.problem);
    ASSERT_TRUE(narrow.ok()) << narrow.status();
    EXPECT_THAT(narrow->key_value[0].value_scale->shape,
                ElementsAre(batch ? 3 : 1, 1, 4));
  }
}

// Two entries, of 2 and 3 keys.
ProblemBuilder Packed() {
  ProblemBuilder b({4, 2, 8}, {5, 2, 8}, {5, 2, 6});
  Block(b) = {.key = b.Zeros(DataType::kInt8, {5, 2, 8}),
              .value = b.Zeros(DataType::kInt8, {5, 2, 6}),
              .key_scale = b.Zeros(DataType::kFloat32, {5, 2}),
              .value_scale = b.Zeros(DataType::kFloat32, {5, 2})};
  b.problem.query_starts = b.Ints({3}, {0, 1, 4});
  b.problem.key_starts = b.Ints({3}, {0, 2, 5});
  return b;
}

TEST(ScalesTest, OfPackedKeysGoWithTheirTokens) {
  ProblemBuilder b = Packed();
  Block(b).key_scale = b.Floats({5, 2}, {0, 1, 10, 11, 20, 21, 30, 31, 40, 41});
  const auto batch = ValidateBatch(b.problem);
  ASSERT_TRUE(batch.ok()) << batch.status();
  ASSERT_EQ(batch->problems.size(), 2U);
  const TensorView& second = *batch->problems[1].key_value[0].key_scale;
  EXPECT_THAT(second.shape, ElementsAre(1, 2, 3));
  float scale = 0;
  std::memcpy(&scale, second.data + second.strides[1] + 2 * second.strides[2],
              sizeof(scale));
  EXPECT_EQ(scale, 41);
}

// There is no entry in them, and tokens are counted through all.
TEST(ScalesTest, OfPackedKeysAreNamedByTokenAndHead) {
  ProblemBuilder b = Packed();
  Block(b).value_scale = b.Floats({5, 2}, {0, 0, 0, 0, 0, 0, 0, -3, 0, 0});
  EXPECT_EQ(ValidateBatch(b.problem).status().message(),
            "value_scale: -3 for row 3 of head 1 (expected a finite number, 0 "
            "or more)");
}

TEST(ScalesTest, OfPackedKeysAreTokensByHeads) {
  ProblemBuilder b = Packed();
  Block(b).value_scale = b.Zeros(DataType::kFloat32, {2, 5});
  EXPECT_EQ(ValidateBatch(b.problem).status().message(),
            "value_scale: shape [2, 5] (expected [5, 2], tokens and heads)");
  b = Packed();
  Block(b).key_scale.reset();
  EXPECT_EQ(ValidateBatch(b.problem).status().message(),
            "key_scale: missing (each row of INT8 has one)");
}

}  // namespace
}  // namespace attention
