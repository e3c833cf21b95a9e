// What the tests measure with, measured: the oracle against the frameworks, and
// the tolerance check against answers that are wrong.

#include "tests/support/oracle.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/golden_cases.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tolerance.h"

namespace attention::test {
namespace {

using ::testing::ElementsAre;

TEST(OracleTest, AgreesWithEveryFramework) {
  ASSERT_OK_AND_ASSIGN(const std::vector<GoldenCase> cases, LoadGoldenCases());
  int checked = 0;
  for (const GoldenCase& golden : cases) {
    SCOPED_TRACE(golden.framework + " " + golden.name);
    ASSERT_OK_AND_ASSIGN(const AttentionProblem problem, GoldenProblem(golden));
    const Expected expected = ComputeExpected(problem);
    EXPECT_TRUE(
        MatchesGolden(golden, expected, expected.output, expected.weights));
    ++checked;
  }
  EXPECT_GT(checked, 50);
}

// The known answers that come with Random123, the authors' own implementation.
TEST(OracleTest, PhiloxGivesTheKnownAnswers) {
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_THAT(OraclePhilox({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(OraclePhilox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(OraclePhilox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                           {0xa4093822, 0x299f31d0}),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

class ToleranceTest : public ::testing::Test {
 protected:
  // The oracle's own answer, rounded to FP32.
  Results Rounded() const {
    const auto rounded = [](Shape shape, const std::vector<double>& values) {
      return Tensor::FromFloats(
          std::move(shape), std::vector<float>(values.begin(), values.end()));
    };
    return {.output = rounded({2, 1, 5, 6}, expected_.output),
            .weights = rounded({2, 1, 5, 11}, expected_.weights),
            .lse = rounded({2, 1, 5}, expected_.lse)};
  }

  bool Passes(const Results& results) const {
    return static_cast<bool>(Matches(owned_.problem, expected_, results));
  }

  static float& Element(Tensor& tensor, int64_t n) {
    return reinterpret_cast<float*>(tensor.data())[n];
  }

  const OwnedProblem owned_ = MakeProblem({}, TestSeed());
  const Expected expected_ = ComputeExpected(owned_.problem);
};

TEST_F(ToleranceTest, PassesARoundedAnswer) { EXPECT_TRUE(Passes(Rounded())); }

TEST_F(ToleranceTest, SeesAWrongOutput) {
  Results results = Rounded();
  Element(results.output, 17) += 1e-4F;
  EXPECT_FALSE(Passes(results));
}

TEST_F(ToleranceTest, SeesNan) {
  Results results = Rounded();
  Element(results.output, 59) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(Passes(results));
}

TEST_F(ToleranceTest, SeesAWrongWeight) {
  Results results = Rounded();
  Element(*results.weights, 40) *= 1.0001F;
  EXPECT_FALSE(Passes(results));
}

TEST_F(ToleranceTest, SeesAWrongLse) {
  Results results = Rounded();
  Element(*results.lse, 9) += 1e-4F;
  EXPECT_FALSE(Passes(results));
}

TEST_F(ToleranceTest, SeesAWrongShape) {
  Results results = Rounded();
  results.output = Tensor::FromFloats({2, 1, 6, 5}, results.output.ToFloats());
  EXPECT_FALSE(Passes(results));
}

TEST_F(ToleranceTest, SeesAMissingResult) {
  Results results = Rounded();
  results.lse.reset();
  EXPECT_FALSE(Passes(results));
}

// A key that takes no part has a weight of exactly 0.
TEST_F(ToleranceTest, SeesATinyWeightWhereNoneMayBe) {
  const std::vector<double> none = {0};
  EXPECT_TRUE(IsWithin("weight", std::vector<double>{0}, none, none));
  EXPECT_FALSE(IsWithin("weight", std::vector<double>{1e-40}, none, none));
}

// An element without a tolerance is out, whatever comes after it.
TEST_F(ToleranceTest, SeesAnElementWhoseToleranceIsNan) {
  const std::vector<double> tolerances = {std::nan(""), 1};
  EXPECT_FALSE(IsWithin("weight", std::vector<double>{1, 0.5},
                        std::vector<double>{0, 0}, tolerances));
}

}  // namespace
}  // namespace attention::test
