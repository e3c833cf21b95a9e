// Products of BF16 of queries with keys and values of one byte, INT8 and FP8,
// whose scales are split between them and what is multiplied with them. Shapes
// and options are in bf16_test.cc.

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/special_numbers.h"
#include "tests/unit/cpu/bf16_fixture.h"

namespace attention::test {
namespace {

using Bf16BytesTest = Bf16Fixture;
using Bf16Int8Test = Bf16Fixture;
using Bf16Float8Test = Bf16Fixture;

// Of a key, and of its values, in one tile of several.
TEST_P(Bf16BytesTest, OneScaleNearTheEndsOfTheRange) {
  for (const double scale : {0.0, 0x1p-126, 0x1.8p-126, 1e-30, 1e24, 1e30}) {
    for (const int64_t at : {0, 130, 269}) {
      SCOPED_TRACE(testing::Message() << scale << " of key " << at);
      const OwnedProblem owned = MakeProblem(Prefill(), TestSeed());
      const KeyValueBlock& block = owned.problem.key_value[0];
      Fill(Slice(block.key, 2, at, at + 1), 0);
      SetElement(*block.key_scale, {0, 0, at}, scale);
      SetElement(*block.value_scale, {0, 1, at}, scale);
      Check(owned.problem);
    }
  }
}

// Products of queries with elements alone, or with scales alone, would leave
// the range, those with keys do not.
TEST_P(Bf16BytesTest, QueriesThatMakeUpForScales) {
  for (const double scale : {1e-34, 1e-20, 1e20, 1e34}) {
    SCOPED_TRACE(scale);
    ProblemSpec spec = Prefill();
    spec.scale = 1;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    Fill(owned.problem.query, 0.01 / scale);
    Fill(*owned.problem.key_value[0].key_scale, scale);
    Check(owned.problem);
  }
}

TEST_P(Bf16BytesTest, ValuesOfAnyMagnitude) {
  for (const double scale : {0x1p-126, 0x1.fp-124, 1e-30, 1e30, 1e34}) {
    SCOPED_TRACE(scale);
    const OwnedProblem owned = MakeProblem(Prefill(), TestSeed());
    Fill(*owned.problem.key_value[0].value_scale, scale);
    Check(owned.problem);
  }
}

// A product beyond FP32's range is infinite, in the rows in which its key takes
// part: its scale's power of two alone would not be.
TEST_P(Bf16BytesTest, ScalesReachBeyondTheRange) {
  for (const bool in_key : {true, false}) {
    ProblemSpec spec = Prefill();
    spec.causal = Causal::kTopLeft;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    const KeyValueBlock& block = owned.problem.key_value[0];
    const TensorView& rows = in_key ? block.key : block.value;
    Fill(Slice(rows, 2, 60, 61), 0);
    SetElement(rows, {0, 1, 60, 3}, 3);
    SetElement(in_key ? *block.key_scale : *block.value_scale, {0, 1, 60},
               0x1.fp126);
    Check(owned.problem);
  }
}

TEST_P(Bf16Int8Test, TheLeastByte) {
  const OwnedProblem owned = MakeProblem(Prefill(), TestSeed());
  const KeyValueBlock& block = owned.problem.key_value[0];
  Fill(Slice(block.key, 2, 7, 8), -128);
  Fill(Slice(block.value, 2, 7, 9), -128);
  Check(owned.problem);
}

TEST_P(Bf16Float8Test, NanIsWhereItTakesPart) {
  for (const bool in_key : {true, false}) {
    for (const double scale : {0.0, 0.3}) {
      ProblemSpec spec = Prefill();
      spec.causal = Causal::kTopLeft;
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      const KeyValueBlock& block = owned.problem.key_value[0];
      SetElement(in_key ? block.key : block.value, {0, 1, 60, 3}, kNan);
      SetElement(in_key ? *block.key_scale : *block.value_scale, {0, 1, 60},
                 scale);
      Check(owned.problem);
    }
  }
}

TEST_P(Bf16BytesTest, MoreResults) {
  ProblemSpec spec = Prefill();
  spec.wanted = {.weights = false,
                 .lse = true,
                 .top_k = 5,
                 .key_weights = true,
                 .scores = ScoreStage::kMasked};
  spec.causal = Causal::kBottomRight;
  Check(spec);
}

// Of whatever magnitude: no row's numbers, nor their order, follow from it.
TEST_P(Bf16BytesTest, AMaskedKeysScaleChangesNoBits) {
  ProblemSpec spec = Prefill();
  spec.causal = Causal::kTopLeft;
  const OwnedProblem plain = MakeProblem(spec, TestSeed());
  const OwnedProblem changed = MakeProblem(spec, TestSeed());
  const KeyValueBlock& block = changed.problem.key_value[0];
  const int64_t masked = spec.query_length;
  Fill(Slice(*block.key_scale, 2, masked, masked + 1), 1e38);
  Fill(Slice(*block.value_scale, 2, masked, masked + 1), 0);
  for (const std::string& target : Targets()) {
    SCOPED_TRACE(target);
    TargetRunner runner(target);
    ASSERT_OK_AND_ASSIGN(const Results expected, runner.Run(plain.problem));
    ASSERT_OK_AND_ASSIGN(const Results results, runner.Run(changed.problem));
    EXPECT_TRUE(SameBits(expected, results));
  }
}

TEST_P(Bf16BytesTest, FewRowsStayInFp32) {
  for (const std::string& target : Targets()) {
    SCOPED_TRACE(target);
    TargetRunner runner(target);
    for (const int64_t queries : {1, 2}) {  // of two heads
      ProblemSpec spec = Prefill();
      spec.query_length = queries;
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      EXPECT_THAT(runner.Run(owned.problem), IsOk());
      EXPECT_THAT(runner.kernel(),
                  ::testing::StartsWith(queries == 1 ? "fp32_tiles" : "bf16"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Bf16BytesTest,
                         ::testing::Values(DataType::kInt8, DataType::kFloat8),
                         Bf16Fixture::NameOf);
INSTANTIATE_TEST_SUITE_P(Types, Bf16Int8Test,
                         ::testing::Values(DataType::kInt8),
                         Bf16Fixture::NameOf);
INSTANTIATE_TEST_SUITE_P(Types, Bf16Float8Test,
                         ::testing::Values(DataType::kFloat8),
                         Bf16Fixture::NameOf);

}  // namespace
}  // namespace attention::test
