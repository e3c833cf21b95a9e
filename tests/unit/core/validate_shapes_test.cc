#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "core/validate.h"
#include "tests/unit/core/problem_builder.h"

namespace attention {
namespace {

using ::testing::ElementsAre;
using testing::ProblemBuilder;

using testing::kF32;

// A good problem, what spoils it, and the whole message that must come of it.
struct BadShape {
  std::string name;
  std::function<void(ProblemBuilder&)> spoil;
  std::string message;
};

class BadShapeTest : public ::testing::TestWithParam<BadShape> {};

TEST_P(BadShapeTest, IsNamedWithWhatItHadAndWhatWasExpected) {
  ProblemBuilder builder;
  ASSERT_TRUE(Validate(builder.problem).ok());
  GetParam().spoil(builder);
  const absl::Status status = Validate(builder.problem).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), GetParam().message);
}

// The good problem: query [2, 4, 3, 8], key [2, 2, 5, 8], value [2, 2, 5, 6].
INSTANTIATE_TEST_SUITE_P(
    Shapes, BadShapeTest,
    ::testing::ValuesIn(std::vector<BadShape>{
        {"QueryOfRankOne",
         [](ProblemBuilder& b) { b.problem.query = b.Zeros(kF32, {8}); },
         "query: shape [8] has 1 dimensions (expected 2, 3 or 4)"},
        {"QueryOfRankFive",
         [](ProblemBuilder& b) {
           b.problem.query = b.Zeros(kF32, {1, 2, 4, 3, 8});
         },
         "query: shape [1, 2, 4, 3, 8] has 5 dimensions (expected 2, 3 or 4)"},
        {"QueryOfIntegers",
         [](ProblemBuilder& b) {
           b.problem.query = b.Zeros(DataType::kInt32, {2, 4, 3, 8});
         },
         "query: datatype INT32 (expected FP32, FP16 or BF16)"},
        {"QueryWithoutHeads",
         [](ProblemBuilder& b) {
           b.problem.query = b.Zeros(kF32, {2, 0, 3, 8});
         },
         "query: shape [2, 0, 3, 8] has 0 heads (expected 1 or more)"},
        {"QueryWithoutWidth",
         [](ProblemBuilder& b) {
           b.problem.query = b.Zeros(kF32, {2, 4, 3, 0});
         },
         "query: shape [2, 4, 3, 0] has width 0 (expected 1 or more)"},
        {"NegativeExtent",
         [](ProblemBuilder& b) { b.problem.query.shape[2] = -3; },
         "query: shape [2, 4, -3, 8] has a negative extent"},
        {"OverflowBesideAZero",
         [](ProblemBuilder& b) {
           b.problem.query.shape = {int64_t{1} << 40, int64_t{1} << 40, 0, 8};
         },
         "query: shape [1099511627776, 1099511627776, 0, 8] has extents whose "
         "product passes 2^63 - 1 bytes"},
        {"StridesMissing",
         [](ProblemBuilder& b) { b.problem.query.strides.pop_back(); },
         "query: as many strides as extents are expected"},
        {"LengthsOnADevice",
         [](ProblemBuilder& b) {
           b.problem.masks.valid_lens = b.Zeros(DataType::kInt32, {2});
           b.problem.masks.valid_lens->space = MemorySpace::kCudaDevice;
         },
         "valid_lens: lies in device memory (host memory is expected)"},
        {"MixedDatatypes",
         [](ProblemBuilder& b) {
           b.problem.key_value[0].key =
               b.Zeros(DataType::kFloat16, {2, 2, 5, 8});
         },
         "value: datatype FP32, key has FP16 (key and value share one)"},
        {"KeysOfIntegers",
         [](ProblemBuilder& b) {
           b.problem.key_value[0].key = b.Zeros(DataType::kInt32, {2, 2, 5, 8});
         },
         "key: datatype INT32 (expected FP32, FP16, BF16, INT8 or FP8)"},
        {"BlocksOfTwoDatatypes",
         [](ProblemBuilder& b) {
           b.problem.key_value.push_back(
               {b.Zeros(DataType::kBFloat16, {2, 2, 5, 8}),
                b.Zeros(DataType::kBFloat16, {2, 2, 5, 6})});
         },
         "key[1]: datatype BF16, key[0] has FP32"},
        {"UnequalRanks",
         [](ProblemBuilder& b) {
           b.problem.key_value[0].value = b.Zeros(kF32, {2, 5, 6});
         },
         "value: shape [2, 5, 6] has 3 dimensions, query has 4 (query, key and "
         "value share one number)"},
        {"UnequalBatches",
         [](ProblemBuilder& b) {
           b.problem.key_value[0].key = b.Zeros(kF32, {3, 2, 5, 8});
         },
         "key: shape [3, 2, 5, 8] has batch 3, query has 2"},
        {"KeyWithoutHeads",
         [](ProblemBuilder& b) {
           b.problem.key_value[0].key = b.Zeros(kF32, {2, 0, 5, 8});
         },
         "key: shape [2, 0, 5, 8] has 0 heads (expected 1 or more)"},
        {"HeadsThatDoNotDivide",
         [](ProblemBuilder& b) {
           b.problem.key_value[0].key = b.Zeros(kF32, {2, 3, 5, 8});
         },
         "key: shape [2, 3, 5, 8] has 3 heads, query has 4 (the query's heads "
         "are a multiple of the key's)"},
        {"KeyWithoutWidth",
         [](ProblemBuilder& b) {
           b.problem.key_value[0].key = b.Zeros(kF32, {2, 2, 5, 0});
         },
         "key: shape [2, 2, 5, 0] has width 0 (expected 1 or more)"},
        {"ValueOfOtherHeads",
         [](ProblemBuilder& b) {
           b.problem.key_value[0].value = b.Zeros(kF32, {2, 4, 5, 6});
         },
         "value: shape [2, 4, 5, 6] has heads 4, key has 2"},
        {"ValueOfOtherLength",
         [](ProblemBuilder& b) {
           b.problem.key_value[0].value = b.Zeros(kF32, {2, 2, 4, 6});
         },
         "value: shape [2, 2, 4, 6] has length 4, key has 5"},
        {"SecondBlockOfOtherWidth",
         [](ProblemBuilder& b) {
           b.problem.key_value.push_back(
               {b.Zeros(kF32, {2, 2, 1, 7}), b.Zeros(kF32, {2, 2, 1, 6})});
         },
         "key[1]: shape [2, 2, 1, 7] has width 7, key[0] has 8"},
        {"SecondBlockOfMoreDimensions",
         [](ProblemBuilder& b) {
           b = ProblemBuilder({2, 3, 8}, {2, 5, 8}, {2, 5, 6});
           b.problem.key_value.push_back(
               {b.Zeros(kF32, {2, 1, 5, 8}), b.Zeros(kF32, {2, 1, 5, 6})});
         },
         "key[1]: shape [2, 1, 5, 8] has 4 dimensions, query has 3 (query, key "
         "and value share one number)"},
        {"OutputThatOverflows",
         [](ProblemBuilder& b) {
           b.problem.key_value[0] = {
               b.Zeros(kF32, {2, 2, 0, 8}),
               b.Zeros(kF32, {2, 2, 0, int64_t{1} << 58})};
         },
         "value: the output's shape [2, 4, 3, 288230376151711744] has extents "
         "whose product passes 2^63 - 1 bytes"},
        {"DropoutOfOne", [](ProblemBuilder& b) { b.problem.dropout.p = 1; },
         "dropout_p: 1 (expected 0 <= p < 1)"},
        {"DropoutBelowZero",
         [](ProblemBuilder& b) { b.problem.dropout.p = -1; },
         "dropout_p: -1 (expected 0 <= p < 1)"},
        {"DropoutNan",
         [](ProblemBuilder& b) {
           b.problem.dropout.p = std::numeric_limits<double>::quiet_NaN();
         },
         "dropout_p: nan (expected 0 <= p < 1)"},
    }),
    [](const auto& test) { return test.param.name; });

TEST(Validate, WidensRankThreeToOneHead) {
  ProblemBuilder builder({2, 3, 8}, {2, 5, 8}, {2, 5, 6});
  const auto valid = Validate(builder.problem);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_THAT(valid->query.shape, ElementsAre(2, 1, 3, 8));
  EXPECT_THAT(valid->output_shape, ElementsAre(2, 3, 6));
  EXPECT_THAT(valid->weights_shape, ElementsAre(2, 3, 5));
  EXPECT_THAT(valid->lse_shape, ElementsAre(2, 3));
}

TEST(Validate, WidensRankTwoToOneBatchEntry) {
  ProblemBuilder builder({3, 8}, {5, 8}, {5, 6});
  const auto valid = Validate(builder.problem);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_THAT(valid->key_value[0].key.shape, ElementsAre(1, 1, 5, 8));
  EXPECT_THAT(valid->output_shape, ElementsAre(3, 6));
  EXPECT_THAT(valid->lse_shape, ElementsAre(3));
}

TEST(Validate, AcceptsEmptyExtents) {
  for (const auto& [query, key, value] :
       std::vector<std::tuple<Shape, Shape, Shape>>{
           {{0, 4, 3, 8}, {0, 2, 5, 8}, {0, 2, 5, 6}},
           {{2, 4, 0, 8}, {2, 2, 5, 8}, {2, 2, 5, 6}},
           {{2, 4, 3, 8}, {2, 2, 0, 8}, {2, 2, 0, 6}},
           {{2, 4, 3, 8}, {2, 2, 5, 8}, {2, 2, 5, 0}}}) {
    ProblemBuilder builder(query, key, value);
    EXPECT_TRUE(Validate(builder.problem).ok()) << ShapeToString(query);
  }
}

TEST(Validate, AddsUpBlocksAndLeavesOutEmptyOnes) {
  ProblemBuilder builder;
  builder.problem.key_value.push_back(
      {builder.Zeros(kF32, {2, 2, 0, 8}), builder.Zeros(kF32, {2, 2, 0, 6})});
  builder.problem.key_value.push_back(
      {builder.Zeros(kF32, {2, 2, 7, 8}), builder.Zeros(kF32, {2, 2, 7, 6})});
  const auto valid = Validate(builder.problem);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_EQ(valid->key_length, 12);
  ASSERT_EQ(valid->key_value.size(), 2U);
  EXPECT_EQ(valid->key_value[1].first_key, 5);
}

TEST(Validate, TakesNoBlocksAsNoKeys) {
  ProblemBuilder builder;
  builder.problem.key_value.clear();
  const auto valid = Validate(builder.problem);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_EQ(valid->key_length, 0);
  EXPECT_THAT(valid->output_shape, ElementsAre(2, 4, 3, 0));
}

TEST(Validate, CountsTheBytesOfWantedResults) {
  ProblemBuilder builder;
  EXPECT_EQ(Validate(builder.problem)->ResultBytes(), 2 * 4 * 3 * 6 * 4);
  builder.problem.wanted = {.weights = true, .lse = true};
  EXPECT_EQ(Validate(builder.problem)->ResultBytes(),
            2 * 4 * 3 * (6 + 5 + 1) * 4);
}

TEST(Validate, DropsNothingUnlessTraining) {
  ProblemBuilder builder;
  builder.problem.dropout.p = 0.5;
  EXPECT_EQ(Validate(builder.problem)->dropout.p, 0);
  builder.problem.dropout.training = true;
  EXPECT_EQ(Validate(builder.problem)->dropout.p, 0.5);
}

}  // namespace
}  // namespace attention
