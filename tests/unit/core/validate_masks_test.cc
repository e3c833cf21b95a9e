#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "core/validate.h"
#include "tests/unit/core/problem_builder.h"

namespace attention {
namespace {

using ::testing::ElementsAre;
using testing::ProblemBuilder;

using testing::kF32;
constexpr int64_t kFarthest = int64_t{1} << 62;

struct BadMask {
  std::string name;
  std::function<void(ProblemBuilder&)> spoil;
  std::string message;
};

class BadMaskTest : public ::testing::TestWithParam<BadMask> {};

TEST_P(BadMaskTest, IsNamedWithWhatItHadAndWhatWasExpected) {
  ProblemBuilder builder;
  GetParam().spoil(builder);
  const absl::Status status = Validate(builder.problem).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), GetParam().message);
}

void SetOffset(ProblemBuilder& b, int64_t offset, Causal causal) {
  b.problem.masks.query_offset = offset;
  b.problem.masks.causal = causal;
}

// The good problem: query [2, 4, 3, 8], key [2, 2, 5, 8], value [2, 2, 5, 6].
INSTANTIATE_TEST_SUITE_P(
    Masks, BadMaskTest,
    ::testing::ValuesIn(std::vector<BadMask>{
        {"LengthsOfFloats",
         [](ProblemBuilder& b) {
           b.problem.masks.valid_lens = b.Zeros(kF32, {2});
         },
         "valid_lens: datatype FP32 (expected INT32 or INT64)"},
        {"LengthsOfWrongShape",
         [](ProblemBuilder& b) {
           b.problem.masks.valid_lens = b.Ints({3}, {1, 1, 1});
         },
         "valid_lens: shape [3] (expected [2] or [2, 3])"},
        {"LengthNegative",
         [](ProblemBuilder& b) {
           b.problem.masks.valid_lens = b.Ints({2}, {5, -1});
         },
         "valid_lens: element [1] is -1 (expected 0 to 5, the number of keys)"},
        {"LengthBeyondTheKeys",
         [](ProblemBuilder& b) {
           b.problem.masks.valid_lens = b.Ints({2, 3}, {0, 1, 2, 3, 6, 5});
         },
         "valid_lens: element [1, 1] is 6 (expected 0 to 5, the number of "
         "keys)"},
        {"MaskOfFloats",
         [](ProblemBuilder& b) {
           b.problem.masks.attend_mask = b.Zeros(kF32, {3, 5});
         },
         "attend_mask: datatype FP32 (expected BOOL or UINT8)"},
        {"MaskValueOfTwo",
         [](ProblemBuilder& b) {
           b.problem.masks.attend_mask = b.Bytes({5}, {0, 1, 1, 2, 0});
         },
         "attend_mask: element [3] is 2 (expected 1 = takes part, or 0 = does "
         "not)"},
        {"MaskThatDoesNotBroadcast",
         [](ProblemBuilder& b) {
           b.problem.masks.attend_mask =
               b.Bytes({2, 5}, std::vector<uint8_t>(10));
         },
         "attend_mask: shape [2, 5] does not broadcast to [2, 4, 3, 5]"},
        {"MaskOfTooManyDimensions",
         [](ProblemBuilder& b) {
           b.problem.masks.attend_mask =
               b.Bytes({1, 1, 1, 1, 5}, std::vector<uint8_t>(5));
         },
         "attend_mask: shape [1, 1, 1, 1, 5] does not broadcast to "
         "[2, 4, 3, 5]"},
        {"BiasOfIntegers",
         [](ProblemBuilder& b) { b.problem.masks.bias = b.Ints({1}, {0}); },
         "bias: datatype INT32 (expected FP32)"},
        {"BiasThatDoesNotBroadcast",
         [](ProblemBuilder& b) {
           b.problem.masks.bias = b.Zeros(kF32, {2, 2, 3, 5});
         },
         "bias: shape [2, 2, 3, 5] does not broadcast to [2, 4, 3, 5]"},
        {"OffsetWithBottomRight",
         [](ProblemBuilder& b) { SetOffset(b, 7, Causal::kBottomRight); },
         "query_offset: 7 was given with causal bottom_right, which places the "
         "queries itself (leave it out)"},
        {"OffsetTooFar",
         [](ProblemBuilder& b) {
           SetOffset(b, (int64_t{1} << 62) + 1, Causal::kTopLeft);
         },
         "query_offset: 4611686018427387905 (expected -2^62 to 2^62)"},
        {"OffsetsOfFloats",
         [](ProblemBuilder& b) {
           b.problem.masks.query_offsets = b.Zeros(kF32, {2});
         },
         "query_offsets: datatype FP32 (expected INT32 or INT64)"},
        {"OffsetsOfWrongShape",
         [](ProblemBuilder& b) {
           b.problem.masks.query_offsets = b.Ints({2, 3}, {0, 1, 2, 3, 4, 5});
         },
         "query_offsets: shape [2, 3] (expected [2])"},
        {"OffsetsOnADevice",
         [](ProblemBuilder& b) {
           TensorView offsets = b.Ints({2}, {0, 1});
           offsets.space = MemorySpace::kCudaDevice;
           b.problem.masks.query_offsets = offsets;
         },
         "query_offsets: lies in device memory (host memory is expected)"},
        {"OffsetsTooFar",
         [](ProblemBuilder& b) {
           b.problem.masks.query_offsets =
               b.Longs({2}, {-kFarthest, -kFarthest - 1});
         },
         "query_offsets: element [1] is -4611686018427387905 (expected -2^62 "
         "to 2^62)"},
        {"OffsetsWithAnOffset",
         [](ProblemBuilder& b) {
           SetOffset(b, 7, Causal::kTopLeft);
           b.problem.masks.query_offsets = b.Ints({2}, {0, 1});
         },
         "query_offsets: was given with query_offset 7 (one of the two is "
         "expected)"},
        {"OffsetsWithBottomRight",
         [](ProblemBuilder& b) {
           b.problem.masks.causal = Causal::kBottomRight;
           b.problem.masks.query_offsets = b.Ints({2}, {0, 1});
         },
         "query_offsets: was given with causal bottom_right, which places the "
         "queries itself (leave it out)"},
        {"WindowLeftNegative",
         [](ProblemBuilder& b) { b.problem.masks.window.left = -1; },
         "window_left: -1 (expected 0 or more; absent = unbounded)"},
        {"WindowRightNegative",
         [](ProblemBuilder& b) { b.problem.masks.window.right = -2; },
         "window_right: -2 (expected 0 or more; absent = unbounded)"},
    }),
    [](const auto& test) { return test.param.name; });

TEST(ValidateMasks, BroadcastsByStridesOfZero) {
  ProblemBuilder builder;
  builder.problem.masks.bias = builder.Zeros(kF32, {4, 1, 5});
  const auto valid = Validate(builder.problem);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_THAT(valid->bias->shape, ElementsAre(2, 4, 3, 5));
  EXPECT_THAT(valid->bias->strides, ElementsAre(0, 20, 0, 4));
}

TEST(ValidateMasks, PutsTheHeadBetweenForRankThree) {
  ProblemBuilder builder({2, 3, 8}, {2, 5, 8}, {2, 5, 6});
  builder.problem.masks.bias = builder.Zeros(kF32, {2, 1, 5});
  const auto valid = Validate(builder.problem);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_THAT(valid->bias->shape, ElementsAre(2, 1, 3, 5));
  EXPECT_THAT(valid->bias->strides, ElementsAre(20, 0, 0, 4));
}

TEST(ValidateMasks, TakesAScalarBias) {
  ProblemBuilder builder;
  builder.problem.masks.bias = builder.Zeros(kF32, {});
  EXPECT_TRUE(Validate(builder.problem).ok());
}

TEST(ValidateMasks, TakesLengthsPerEntryAndPerRow) {
  ProblemBuilder builder;
  builder.problem.masks.valid_lens = builder.Ints({2}, {0, 5});
  EXPECT_THAT(Validate(builder.problem)->valid_lens->strides,
              ElementsAre(4, 0));
  builder.problem.masks.valid_lens = builder.Ints({2, 3}, {0, 1, 2, 3, 4, 5});
  EXPECT_THAT(Validate(builder.problem)->valid_lens->strides,
              ElementsAre(12, 4));
}

TEST(ValidateMasks, ReadsAStridedMaskWhereItIs) {
  ProblemBuilder builder;
  // Every other byte is a mask; those between are 7 and must not be looked at.
  TensorView mask = builder.Bytes({10}, {1, 7, 0, 7, 1, 7, 0, 7, 1, 7});
  mask.shape = {5};
  mask.strides = {2};
  builder.problem.masks.attend_mask = mask;
  EXPECT_TRUE(Validate(builder.problem).ok());
}

// The first of a 2, by the mask's own indices, where it lies in rows with gaps
// and where it is repeated.
TEST(ValidateMasks, NamesAnElementOfRowsWithGapsAndOfRepeatedOnes) {
  ProblemBuilder builder;
  TensorView mask = builder.Bytes({18}, {1, 0, 1, 0, 1, 7, 1, 0, 1, 0, 1, 7,  //
                                         1, 0, 1, 2, 1, 7});
  mask.shape = {3, 5};
  mask.strides = {6, 1};
  builder.problem.masks.attend_mask = mask;
  EXPECT_EQ(Validate(builder.problem).status().message(),
            "attend_mask: element [2, 3] is 2 (expected 1 = takes part, or 0 = "
            "does not)");
  mask = builder.Bytes({2, 5}, {1, 1, 1, 1, 1, 1, 2, 1, 1, 1});
  mask.shape = {2, 4, 3, 5};
  mask.strides = {5, 0, 0, 1};
  builder.problem.masks.attend_mask = mask;
  EXPECT_EQ(Validate(builder.problem).status().message(),
            "attend_mask: element [1, 0, 0, 1] is 2 (expected 1 = takes part, "
            "or 0 = does not)");
}

// For each row or entry anew it would take hours.
TEST(ValidateMasks, LooksAtWhatIsRepeatedOnce) {
  constexpr int64_t kMany = int64_t{1} << 28;
  ProblemBuilder builder;
  const auto repeated = [](TensorView view, Shape shape) {
    view.strides = Shape(shape.size(), 0);
    view.shape = std::move(shape);
    return view;
  };
  const TensorView number = builder.Zeros(kF32, {1});
  builder.problem.query = repeated(number, {kMany, 1, 64, 1});
  builder.problem.key_value[0] = {repeated(number, {kMany, 1, 64, 1}),
                                  repeated(number, {kMany, 1, 64, 1})};
  const TensorView zero = builder.Ints({1}, {0});
  builder.problem.masks.attend_mask =
      repeated(builder.Bytes({1}, {1}), {kMany, 1, 64, 64});
  builder.problem.masks.valid_lens = repeated(zero, {kMany, 64});
  builder.problem.masks.query_offsets = repeated(zero, {kMany});
  builder.problem.sinks = repeated(number, {kMany, 1});
  const absl::Status status = Validate(builder.problem).status();
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ValidateMasks, ReadsNothingOfAnEmptyMask) {
  ProblemBuilder builder({2, 4, 0, 8}, {2, 2, 5, 8}, {2, 2, 5, 6});
  builder.problem.masks.attend_mask = builder.Bytes({0, 5}, {});
  EXPECT_TRUE(Validate(builder.problem).ok());
  TensorView repeated = builder.Bytes({1}, {7});
  repeated.shape = {2, 4, 0, 5};
  repeated.strides = {0, 0, 0, 0};
  builder.problem.masks.attend_mask = repeated;
  EXPECT_TRUE(Validate(builder.problem).ok());
}

TEST(ValidateMasks, TakesOffsetsOfEveryBatchEntry) {
  ProblemBuilder builder;
  builder.problem.masks.query_offsets =
      builder.Longs({2}, {-kFarthest, kFarthest});
  EXPECT_TRUE(Validate(builder.problem).ok());
  builder.problem.masks.query_offsets = builder.Ints({2}, {-3, 7});
  EXPECT_TRUE(Validate(builder.problem).ok());
}

TEST(ValidateMasks, PlacesQueriesForTheBottomRight) {
  ProblemBuilder builder;
  builder.problem.masks.causal = Causal::kBottomRight;
  EXPECT_EQ(Validate(builder.problem)->query_position, 5 - 3);
}

}  // namespace
}  // namespace attention
