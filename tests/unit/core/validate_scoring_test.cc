#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "core/validate.h"
#include "tests/support/special_numbers.h"
#include "tests/unit/core/problem_builder.h"

namespace attention {
namespace {

using test::kInfinity;
using test::kNan;
using ::testing::ElementsAre;
using testing::ProblemBuilder;

using testing::kF32;

struct BadScoring {
  std::string name;
  std::function<void(ProblemBuilder&)> spoil;
  std::string message;
};

class BadScoringTest : public ::testing::TestWithParam<BadScoring> {};

TEST_P(BadScoringTest, IsNamedWithWhatItHadAndWhatWasExpected) {
  ProblemBuilder builder;
  GetParam().spoil(builder);
  const absl::Status status = Validate(builder.problem).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), GetParam().message);
}

void MakeKeyNarrower(ProblemBuilder& b) {
  b.problem.key_value[0].key = b.Zeros(kF32, {2, 2, 5, 7});
}

Additive GoodAdditive(ProblemBuilder& b) {
  return {b.Zeros(kF32, {8, 3}), b.Zeros(kF32, {8, 3}), b.Zeros(kF32, {3})};
}

// The good problem: query [2, 4, 3, 8], key [2, 2, 5, 8], value [2, 2, 5, 6].
INSTANTIATE_TEST_SUITE_P(
    Scoring, BadScoringTest,
    ::testing::ValuesIn(std::vector<BadScoring>{
        {"DotProductOfUnequalWidths", MakeKeyNarrower,
         "key: shape [2, 2, 5, 7] has width 7, query has 8 (scaled dot product "
         "needs equal widths)"},
        {"GaussianOfUnequalWidths",
         [](ProblemBuilder& b) {
           MakeKeyNarrower(b);
           b.problem.scoring = Gaussian{};
         },
         "key: shape [2, 2, 5, 7] has width 7, query has 8 (Gaussian scoring "
         "needs equal widths)"},
        {"ScaleNan",
         [](ProblemBuilder& b) { b.problem.scoring = ScaledDotProduct{kNan}; },
         "scale: nan (expected a finite FP32 number)"},
        {"ScaleInfinite",
         [](ProblemBuilder& b) {
           b.problem.scoring = ScaledDotProduct{-kInfinity};
         },
         "scale: -inf (expected a finite FP32 number)"},
        {"SigmaZero",
         [](ProblemBuilder& b) { b.problem.scoring = Gaussian{0}; },
         "sigma: 0 (expected more than 0)"},
        {"SigmaNan",
         [](ProblemBuilder& b) { b.problem.scoring = Gaussian{kNan}; },
         "sigma: nan (expected more than 0)"},
        {"SigmaInfinite",
         [](ProblemBuilder& b) { b.problem.scoring = Gaussian{kInfinity}; },
         "sigma: inf (expected a finite FP32 number)"},
        {"SigmaWhoseSquareIsTooSmallForFp32",
         [](ProblemBuilder& b) { b.problem.scoring = Gaussian{9e-20}; },
         "sigma: 9e-20 (expected 1e-19 or more)"},
        {"ScaleTooLargeInPowersOfTwo",
         [](ProblemBuilder& b) { b.problem.scoring = ScaledDotProduct{-3e38}; },
         "scale: -3e+38 (expected -2e+38 to 2e+38)"},
        {"BilinearScaleTooLargeInPowersOfTwo",
         [](ProblemBuilder& b) {
           b.problem.scoring = Bilinear{b.Zeros(kF32, {8, 8}), 3e38};
         },
         "scale: 3e+38 (expected -2e+38 to 2e+38)"},
        {"SoftcapNegative", [](ProblemBuilder& b) { b.problem.softcap = -30; },
         "softcap: -30 (expected more than 0)"},
        {"BilinearScaleInfinite",
         [](ProblemBuilder& b) {
           b.problem.scoring = Bilinear{b.Zeros(kF32, {8, 8}), kInfinity};
         },
         "scale: inf (expected a finite FP32 number)"},
        {"MatrixOfWrongShape",
         [](ProblemBuilder& b) {
           b.problem.scoring = Bilinear{b.Zeros(kF32, {8, 7}), 1};
         },
         "m: shape [8, 7] (expected [8, 8] or [4, 8, 8])"},
        {"MatrixOfOtherDatatype",
         [](ProblemBuilder& b) {
           b.problem.scoring =
               Bilinear{b.Zeros(DataType::kBFloat16, {8, 8}), 1};
         },
         "m: datatype BF16 (expected FP32)"},
        {"QueryProjectionOfWrongWidth",
         [](ProblemBuilder& b) {
           Additive additive = GoodAdditive(b);
           additive.w_q = b.Zeros(kF32, {3, 8});
           b.problem.scoring = additive;
         },
         "w_q: shape [3, 8] (expected [8, h] or [4, 8, h])"},
        {"HiddenWidthZero",
         [](ProblemBuilder& b) {
           Additive additive = GoodAdditive(b);
           additive.w_q = b.Zeros(kF32, {8, 0});
           b.problem.scoring = additive;
         },
         "w_q: shape [8, 0] has hidden width 0 (expected 1 or more)"},
        {"KeyProjectionOfOtherHiddenWidth",
         [](ProblemBuilder& b) {
           Additive additive = GoodAdditive(b);
           additive.w_k = b.Zeros(kF32, {8, 4});
           b.problem.scoring = additive;
         },
         "w_k: shape [8, 4] (expected [8, 3] or [4, 8, 3])"},
        {"ValueVectorOfOtherHiddenWidth",
         [](ProblemBuilder& b) {
           Additive additive = GoodAdditive(b);
           additive.w_v = b.Zeros(kF32, {4});
           b.problem.scoring = additive;
         },
         "w_v: shape [4] (expected [3] or [4, 3])"},
    }),
    [](const auto& test) { return test.param.name; });

TEST(ValidateScoring, FillsInTheDefaultScale) {
  ProblemBuilder builder;
  EXPECT_EQ(Validate(builder.problem)->scale, 1 / std::sqrt(8.0));
}

TEST(ValidateScoring, KeepsAScaleOfZero) {
  ProblemBuilder builder;
  builder.problem.scoring = ScaledDotProduct{0};
  EXPECT_EQ(Validate(builder.problem)->scale, 0);
}

TEST(ValidateScoring, GivesSharedParametersAHeadExtent) {
  ProblemBuilder builder;
  builder.problem.scoring = GoodAdditive(builder);
  const auto valid = Validate(builder.problem);
  ASSERT_TRUE(valid.ok()) << valid.status();
  const auto& additive = std::get<Additive>(valid->scoring);
  EXPECT_EQ(valid->hidden_width, 3);
  EXPECT_THAT(additive.w_q.shape, ElementsAre(4, 8, 3));
  EXPECT_EQ(additive.w_q.strides[0], 0);
  EXPECT_THAT(additive.w_v.shape, ElementsAre(4, 3));
}

TEST(ValidateScoring, TakesParametersPerHeadAndColumns) {
  for (const Shape& w_v :
       {Shape{3}, Shape{3, 1}, Shape{4, 3}, Shape{4, 3, 1}}) {
    ProblemBuilder builder;
    Additive additive = GoodAdditive(builder);
    additive.w_q = builder.Zeros(kF32, {4, 8, 3});
    additive.w_v = builder.Zeros(kF32, w_v);
    builder.problem.scoring = additive;
    const auto valid = Validate(builder.problem);
    ASSERT_TRUE(valid.ok()) << valid.status();
    EXPECT_THAT(std::get<Additive>(valid->scoring).w_v.shape, ElementsAre(4, 3))
        << ShapeToString(w_v);
  }
}

TEST(ValidateScoring, TakesParametersOfTheQuerysTypeOrFp32) {
  for (const DataType type : {DataType::kFloat16, kF32}) {
    ProblemBuilder builder;
    builder.problem.query = builder.Zeros(DataType::kFloat16, {3, 8});
    builder.problem.key_value[0] = {builder.Zeros(DataType::kFloat16, {5, 8}),
                                    builder.Zeros(DataType::kFloat16, {5, 6})};
    builder.problem.scoring = Bilinear{builder.Zeros(type, {8, 8}), 1};
    EXPECT_TRUE(Validate(builder.problem).ok()) << Name(type);
  }
}

}  // namespace
}  // namespace attention
