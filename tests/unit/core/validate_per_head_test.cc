#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/validate.h"
#include "tests/support/special_numbers.h"
#include "tests/unit/core/problem_builder.h"

namespace attention {
namespace {

using test::kFloatInfinity;
using test::kFloatNan;
using ::testing::ElementsAre;
using testing::ProblemBuilder;

struct BadOption {
  std::string name;
  std::function<void(ProblemBuilder&)> spoil;
  std::string message;
};

class BadPerHeadTest : public ::testing::TestWithParam<BadOption> {};

TEST_P(BadPerHeadTest, IsNamedWithWhatItHadAndWhatWasExpected) {
  ProblemBuilder builder;
  GetParam().spoil(builder);
  const absl::Status status = Validate(builder.problem).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), GetParam().message);
}

TensorView OnADevice(TensorView view) {
  view.space = MemorySpace::kCudaDevice;
  return view;
}

// The good problem: query [2, 4, 3, 8].
INSTANTIATE_TEST_SUITE_P(
    PerHead, BadPerHeadTest,
    ::testing::ValuesIn(std::vector<BadOption>{
        {"SlopesOfIntegers",
         [](ProblemBuilder& b) {
           b.problem.alibi_slopes = b.Ints({4}, {1, 2, 3, 4});
         },
         "alibi_slopes: datatype INT32 (expected FP32)"},
        {"SlopesOfWrongShape",
         [](ProblemBuilder& b) {
           b.problem.alibi_slopes = b.Floats({2}, {1, 2});
         },
         "alibi_slopes: shape [2] (expected [4] or [2, 4])"},
        {"SlopesOnADevice",
         [](ProblemBuilder& b) {
           b.problem.alibi_slopes = OnADevice(b.Floats({4}, {1, 2, 3, 4}));
         },
         "alibi_slopes: lies in device memory (host memory is expected)"},
        {"SinksOfHalfPrecision",
         [](ProblemBuilder& b) {
           b.problem.sinks = b.Zeros(DataType::kFloat16, {4});
         },
         "sinks: datatype FP16 (expected FP32)"},
        {"SinksOfWrongShape",
         [](ProblemBuilder& b) {
           b.problem.sinks = b.Zeros(DataType::kFloat32, {4, 1});
         },
         "sinks: shape [4, 1] (expected [4] or [2, 4])"},
        {"SinksOnADevice",
         [](ProblemBuilder& b) {
           b.problem.sinks = OnADevice(b.Floats({4}, {1, 2, 3, 4}));
         },
         "sinks: lies in device memory (host memory is expected)"},
        {"SinkOfNan",
         [](ProblemBuilder& b) {
           b.problem.sinks = b.Floats({4}, {1, 2, kFloatNan, 4});
         },
         "sinks: element [2] is nan (expected a finite number, or -inf for no "
         "sink)"},
        {"SinkOfInfinity",
         [](ProblemBuilder& b) {
           b.problem.sinks =
               b.Floats({2, 4}, {1, 2, 3, 4, 5, 6, 7, kFloatInfinity});
         },
         "sinks: element [1, 3] is inf (expected a finite number, or -inf for "
         "no sink)"},
    }),
    [](const auto& test) { return test.param.name; });

TEST(ValidatePerHead, HasNeitherWhereNoneIsGiven) {
  const ProblemBuilder builder;
  const auto valid = Validate(builder.problem);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_EQ(valid->AlibiSlope(1, 2), 0);
  EXPECT_EQ(valid->Sink(1, 2), -kFloatInfinity);
}

TEST(ValidatePerHead, SharesThoseOfAHeadAmongTheBatch) {
  ProblemBuilder builder;
  builder.problem.alibi_slopes = builder.Floats({4}, {1, 2, 3, kFloatNan});
  builder.problem.sinks = builder.Floats({4}, {5, 6, 7, -kFloatInfinity});
  const auto valid = Validate(builder.problem);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_THAT(valid->sinks->shape, ElementsAre(2, 4));
  EXPECT_EQ(valid->AlibiSlope(1, 2), 3);
  EXPECT_EQ(valid->Sink(1, 2), 7);
  EXPECT_EQ(valid->Sink(0, 3), -kFloatInfinity);
}

TEST(ValidatePerHead, TakesThoseOfEveryBatchEntry) {
  ProblemBuilder builder;
  builder.problem.sinks = builder.Floats({2, 4}, {0, 1, 2, 3, 4, 5, 6, 7});
  const auto valid = Validate(builder.problem);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_EQ(valid->Sink(0, 3), 3);
  EXPECT_EQ(valid->Sink(1, 2), 6);
}

TEST(ValidatePerHead, LooksAtSharedSinksThoughTheBatchIsEmpty) {
  ProblemBuilder builder({0, 1, 3, 8}, {0, 1, 5, 8}, {0, 1, 5, 6});
  builder.problem.sinks = builder.Floats({1}, {kFloatNan});
  EXPECT_EQ(Validate(builder.problem).status().message(),
            "sinks: element [0] is nan (expected a finite number, or -inf for "
            "no sink)");
}

// For each batch entry anew it would take hours.
TEST(ValidatePerHead, LooksAtSharedSinksOfABatchOnce) {
  constexpr int64_t kEntries = int64_t{1} << 34;
  ProblemBuilder builder({kEntries, 1024, 0, 1}, {kEntries, 1024, 0, 1},
                         {kEntries, 1024, 0, 1});
  TensorView sinks = builder.Zeros(DataType::kFloat32, {1024});
  builder.problem.sinks = sinks;
  EXPECT_TRUE(Validate(builder.problem).ok());
  sinks.shape = {kEntries, 1024};
  sinks.strides = {0, sizeof(float)};
  builder.problem.sinks = sinks;
  EXPECT_TRUE(Validate(builder.problem).ok());
}

// A query without heads of its own has one.
TEST(ValidatePerHead, TakesOneForRankTwo) {
  ProblemBuilder builder({3, 8}, {5, 8}, {5, 6});
  builder.problem.sinks = builder.Floats({1}, {2});
  builder.problem.alibi_slopes = builder.Floats({1, 1}, {3});
  const auto valid = Validate(builder.problem);
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_EQ(valid->Sink(0, 0), 2);
  EXPECT_EQ(valid->AlibiSlope(0, 0), 3);
}

}  // namespace
}  // namespace attention
