// Rows that hold what is not finite, rows without keys, and rows that lie far
// from the centre: none of them is served by FP32.

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {
namespace {

using CarefulRowsTest = CpuTest;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kPlanted = 140;  // a key in the second tile

ProblemSpec Prefill() {
  return {.batch = 1,
          .query_heads = 2,
          .kv_heads = 1,
          .query_length = 75,
          .key_length = 270,
          .width = 12,
          .value_width = 9};
}

void Plant(const OwnedProblem& owned, double in_key, double in_value) {
  const KeyValueBlock& block = owned.problem.key_value[0];
  SetElement(block.key, {0, 0, kPlanted, 3}, in_key);
  SetElement(block.value, {0, 0, kPlanted, 2}, in_value);
}

class NanBehindMasksTest : public CpuTest {
 protected:
  // With what is planted in a key that takes part in some rows only.
  void CheckPlanted(const ProblemSpec& spec) {
    for (const bool weights : {false, true}) {
      for (const ScoringKind scoring :
           {ScoringKind::kDotProduct, ScoringKind::kAdditive,
            ScoringKind::kGaussian, ScoringKind::kBilinear}) {
        ProblemSpec each = spec;
        each.scoring = scoring;
        each.wanted.weights = weights;
        const OwnedProblem owned = MakeProblem(each, TestSeed());
        Plant(owned, kNan, kNan);
        Check(owned.problem);
        Plant(owned, 0.5, kInfinity);
        Check(owned.problem);
      }
    }
  }
};

TEST_P(NanBehindMasksTest, ValidLens) {
  ProblemSpec spec = Prefill();
  spec.valid_lens = LengthsShape::kPerRow;
  CheckPlanted(spec);
}

TEST_P(NanBehindMasksTest, AttendMask) {
  ProblemSpec spec = Prefill();
  spec.attend_mask = MaskExtents::kAll;
  CheckPlanted(spec);
}

TEST_P(NanBehindMasksTest, Bias) {
  ProblemSpec spec = Prefill();
  spec.bias = MaskExtents::kAll;
  spec.bias_masks = 0.5;
  CheckPlanted(spec);
}

TEST_P(NanBehindMasksTest, CausalRule) {
  ProblemSpec spec = Prefill();
  spec.causal = Causal::kTopLeft;
  spec.query_offset = kPlanted - 30;
  CheckPlanted(spec);
}

TEST_P(NanBehindMasksTest, Window) {
  ProblemSpec spec = Prefill();
  spec.window = {.left = 20, .right = 10};
  spec.query_offset = kPlanted - 30;
  CheckPlanted(spec);
}

// A dropped key is left out like one that takes no part.
TEST_P(NanBehindMasksTest, Dropout) {
  ProblemSpec spec = Prefill();
  spec.dropout = {.training = true, .p = 0.5, .seed = 3};
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  Plant(owned, 0.5, kNan);
  Check(owned.problem);
}

INSTANTIATE_FOR_TARGETS(NanBehindMasksTest);

TEST_P(CarefulRowsTest, NanInAQueryGivesNanWeightsToItsKeysAlone) {
  ProblemSpec spec = Prefill();
  spec.causal = Causal::kTopLeft;
  for (const ScoringKind scoring :
       {ScoringKind::kDotProduct, ScoringKind::kAdditive,
        ScoringKind::kGaussian, ScoringKind::kBilinear}) {
    spec.scoring = scoring;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    SetElement(owned.problem.query, {0, 1, 40, 5}, kNan);
    Check(owned.problem);
  }
}

// Its tanh times infinity is infinite, and a softcap makes that finite.
TEST_P(CarefulRowsTest, AnInfiniteWeightOfAdditiveScoringUnderASoftcap) {
  for (const bool weights : {false, true}) {
    ProblemSpec spec = {.scoring = ScoringKind::kAdditive, .softcap = 0.5};
    spec.wanted.weights = weights;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    SetElement(std::get<Additive>(owned.problem.scoring).w_v, {0}, kInfinity);
    ASSERT_OK_AND_ASSIGN(const Results cpu, runner_.Run(owned.problem));
    ASSERT_OK_AND_ASSIGN(const Results reference,
                         RunOn(*MakeEngine("reference"), owned.problem));
    EXPECT_THAT(cpu.output.ToDoubles(),
                ::testing::Pointwise(::testing::DoubleNear(1e-6),
                                     reference.output.ToDoubles()));
  }
}

TEST_P(CarefulRowsTest, AScoreOfInfinityGivesANanRow) {
  const OwnedProblem owned = MakeProblem(Prefill(), TestSeed());
  for (int64_t i = 0; i < 75; ++i) {
    SetElement(owned.problem.query, {0, 0, i, 3}, 1);
    SetElement(owned.problem.query, {0, 1, i, 3}, -1);
  }
  Plant(owned, kInfinity, 0.5);
  ASSERT_OK_AND_ASSIGN(const Results results, runner_.Run(owned.problem));
  const std::vector<double> lse = results.lse->ToDoubles();
  for (size_t i = 0; i < 75; ++i) {
    EXPECT_TRUE(std::isnan(lse[i])) << i;
    EXPECT_TRUE(std::isfinite(lse[75 + i])) << i;  // -inf takes no part
  }
}

// What 0 times NaN is there, it is here.
TEST_P(CarefulRowsTest, NanInAValueWhoseWeightUnderflowsIsAsInTheReference) {
  ProblemSpec spec = Prefill();
  spec.key_length = 3;
  spec.width = 1;
  spec.scale = 1;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  Fill(owned.problem.query, 1);
  const KeyValueBlock& block = owned.problem.key_value[0];
  SetElement(block.key, {0, 0, 0, 0}, 10);
  SetElement(block.key, {0, 0, 1, 0}, -2000);
  SetElement(block.key, {0, 0, 2, 0}, 9);
  SetElement(block.value, {0, 0, 1, 4}, kNan);
  ASSERT_OK_AND_ASSIGN(const Results results, runner_.Run(owned.problem));
  ASSERT_OK_AND_ASSIGN(const Results expected,
                       RunOn(*MakeEngine("reference"), owned.problem));
  const auto is_nan = [](const Results& of) {
    std::vector<bool> nan;
    for (const double x : of.output.ToDoubles()) nan.push_back(std::isnan(x));
    return nan;
  };
  EXPECT_EQ(is_nan(results), is_nan(expected));
}

TEST_P(CarefulRowsTest, UniformWhereNoKeyTakesPart) {
  for (const ScoringKind scoring :
       {ScoringKind::kDotProduct, ScoringKind::kAdditive}) {
    ProblemSpec spec = Prefill();
    spec.scoring = scoring;
    spec.empty_rows = EmptyRows::kUniform;
    spec.causal = Causal::kTopLeft;
    spec.query_offset = -40;  // as many rows without keys
    Check(spec);
    spec.attend_mask = MaskExtents::kAll;
    spec.keys_per_block = 100;
    Check(spec);
  }
}

TEST_P(CarefulRowsTest, UniformUnderDropout) {
  for (const bool after : {false, true}) {
    ProblemSpec spec = Prefill();
    spec.empty_rows = EmptyRows::kUniform;
    spec.causal = Causal::kTopLeft;
    spec.query_offset = -40;
    spec.dropout = {.training = true, .p = 0.4, .seed = 5};
    spec.wanted.weights_after_dropout = after;
    Check(spec);
  }
}

TEST_P(CarefulRowsTest, ZeroForAllRowsWithoutKeys) {
  for (const EmptyRows empty : {EmptyRows::kZero, EmptyRows::kUniform}) {
    ProblemSpec spec = Prefill();
    spec.empty_rows = empty;
    spec.bias = MaskExtents::kAll;
    spec.bias_masks = 1;
    Check(spec);
  }
}

// The first keys, which the centre is taken from, are masked and far away, or
// no place at all.
TEST_P(CarefulRowsTest, GaussianRowsFarFromTheCentre) {
  for (const double place : {1e3, 1e15, 3e38, kInfinity, kNan}) {
    for (const bool by_bias : {false, true}) {
      ProblemSpec spec = Prefill();
      spec.wanted.weights = by_bias;
      spec.scoring = ScoringKind::kGaussian;
      spec.attend_mask = by_bias ? MaskExtents::kNone : MaskExtents::kAll;
      spec.bias = by_bias ? MaskExtents::kAll : MaskExtents::kNone;
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      const Masks& masks = owned.problem.masks;
      for (int64_t j = 0; j < spec.key_length; ++j) {
        if (j % 3 == 2) continue;
        for (int64_t i = 0; i < spec.query_length; ++i) {
          for (int64_t h = 0; h < 2; ++h) {
            if (by_bias) SetElement(*masks.bias, {0, h, i, j}, -kInfinity);
            if (!by_bias) SetElement(*masks.attend_mask, {0, h, i, j}, 0);
          }
        }
        for (int64_t d = 0; d < spec.width; ++d) {
          SetElement(owned.problem.key_value[0].key, {0, 0, j, d}, place);
        }
      }
      Check(owned.problem);
    }
  }
}

TEST_P(CarefulRowsTest, RowsTooWideForScratchUnderUniform) {
  ProblemSpec spec = {.query_length = 70,
                      .key_length = 9,
                      .width = 9000,
                      .value_width = 5,
                      .causal = Causal::kTopLeft,
                      .query_offset = -3,
                      .empty_rows = EmptyRows::kUniform};
  Check(spec);
}

INSTANTIATE_FOR_TARGETS(CarefulRowsTest);

}  // namespace
}  // namespace attention::test
