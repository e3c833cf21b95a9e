// One step of decoding over INT8 keys, which AMX multiplies by the digits of
// queries and weights: what digits cannot say, and how exact they are.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {
namespace {

constexpr int64_t kKeys = 150;
constexpr int64_t kWidth = 70;

ProblemSpec DecodeOfInt8() {
  return {.batch = 1,
          .query_heads = 4,
          .kv_heads = 1,
          .query_length = 1,
          .key_length = kKeys,
          .width = kWidth,
          .value_width = kWidth,
          .type = DataType::kBFloat16,
          .key_type = DataType::kInt8,
          .wanted = {.lse = true}};
}

// Elements of one channel that are far above all others meet keys that are 0
// there: digits would say little of the others.
TEST(Int8DecodeTest, QueriesWhoseElementsAreFarApart) {
  for (const double large : {0x1p10, 0x1p21, 0x1p24, 0x1p40, 0x1p100}) {
    SCOPED_TRACE(large);
    const OwnedProblem owned = MakeProblem(DecodeOfInt8(), TestSeed());
    const TensorView& key = owned.problem.key_value[0].key;
    for (int64_t head = 0; head < 4; head += 2) {
      SetElement(owned.problem.query, {0, head, 0, 3}, large);
    }
    Fill(Slice(key, 3, 3, 4), 0);
    CheckOnEveryTarget(owned.problem);
  }
}

// The smaller element is lost where the query is scaled to whole numbers.
TEST(Int8DecodeTest, QueriesWhoseSmallerElementsCountAlone) {
  const OwnedProblem owned = MakeProblem(DecodeOfInt8(), TestSeed());
  const KeyValueBlock& block = owned.problem.key_value[0];
  Fill(owned.problem.query, 0);
  Fill(Slice(owned.problem.query, 3, 3, 4), 0x1p110);
  Fill(Slice(owned.problem.query, 3, 5, 6), 0x1p-47);
  Fill(Slice(block.key, 3, 3, 4), 0);
  Fill(*block.key_scale, 0x1p46);
  CheckOnEveryTarget(owned.problem);
}

TEST(Int8DecodeTest, SmallQueries) {
  for (const double unit : {0x1p-98, 0x1p-115, 0x1p-120}) {
    SCOPED_TRACE(unit);
    const OwnedProblem owned = MakeProblem(DecodeOfInt8(), TestSeed());
    for (int64_t i = 0; i < kWidth; ++i) {
      const double sign = i % 3 == 0 ? -1 : 1;
      Fill(Slice(owned.problem.query, 3, i, i + 1),
           sign * unit * static_cast<double>(1 + i % 7));
    }
    Fill(*owned.problem.key_value[0].key_scale, 0x1p70);
    CheckOnEveryTarget(owned.problem);
  }
}

// Their queries are projected, and no numbers of 16 bits any more.
TEST(Int8DecodeTest, BilinearScoresAreNotMultipliedByDigits) {
  ProblemSpec spec = DecodeOfInt8();
  spec.scoring = ScoringKind::kBilinear;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  for (const std::string& target : CpuTestTargets()) {
    TargetRunner runner(target);
    ASSERT_OK_AND_ASSIGN(const Results results, runner.Run(owned.problem));
    EXPECT_TRUE(Matches(owned.problem, results));
    EXPECT_EQ(runner.kernel(), "fp32_decode") << target;
  }
}

TEST(Int8DecodeTest, QueriesThatAreNotFinite) {
  for (const double special : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    SCOPED_TRACE(special);
    const OwnedProblem owned = MakeProblem(DecodeOfInt8(), TestSeed());
    SetElement(owned.problem.query, {0, 1, 0, 69}, special);
    CheckOnEveryTarget(owned.problem);
  }
}

TEST(Int8DecodeTest, ValuesOfEveryScale) {
  for (const double unit : {0x1p-120, 0x1p-60, 0x1p60}) {
    SCOPED_TRACE(unit);
    const OwnedProblem owned = MakeProblem(DecodeOfInt8(), TestSeed());
    Fill(*owned.problem.key_value[0].value_scale, unit);
    CheckOnEveryTarget(owned.problem);
  }
}

// docs/numerics.md: a weight is off by at most 2^-30 of the row's largest.
// Nothing hides that where the key with the largest has values of 0.
TEST(Int8DecodeTest, WeightsFarBelowTheLargestStay) {
  for (const double below : {10.0, 16.0, 20.0}) {
    SCOPED_TRACE(below);
    ProblemSpec spec = DecodeOfInt8();
    spec.bias = MaskExtents::kAll;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    const KeyValueBlock& block = owned.problem.key_value[0];
    Fill(owned.problem.query, 0);
    Fill(*owned.problem.masks.bias, -below * std::log(2));
    Fill(Slice(*owned.problem.masks.bias, 3, 77, 78), 0);
    Fill(Slice(block.value, 2, 77, 78), 0);
    Fill(*block.value_scale, 0.01);
    const Expected expected = ComputeExpected(owned.problem);
    std::vector<double> tolerances =
        OutputTolerances(expected, DataType::kBFloat16);
    for (double& tolerance : tolerances) {
      tolerance += 0x1p-30 * kKeys * 0.01 * 128;
    }
    for (const std::string& target : CpuTestTargets()) {
      SCOPED_TRACE(target);
      ASSERT_OK_AND_ASSIGN(const Results results,
                           TargetRunner(target).Run(owned.problem));
      EXPECT_TRUE(IsWithin("output", results.output.ToDoubles(),
                           expected.output, tolerances));
    }
  }
}

}  // namespace
}  // namespace attention::test
