// NaN and infinity in a key or value reach the rows that it takes part in, and
// no other; in a query its own row.

#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/datatype.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/special_numbers.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {
namespace {

using ::testing::Each;
using ::testing::IsNan;

constexpr int64_t kPlanted = 140;  // a key in the second tile

ProblemSpec MaskedPrefill() {
  return {.batch = 1,
          .query_heads = 2,
          .kv_heads = 1,
          .query_length = 75,
          .key_length = 270,
          .width = 12,
          .value_width = 9};
}

// One row per head; heads are what masks tell apart.
ProblemSpec MaskedDecode() {
  ProblemSpec spec = MaskedPrefill();
  spec.query_heads = 6;
  spec.query_length = 1;
  spec.key_length = 1500;
  return spec;
}

void Plant(const OwnedProblem& owned, double in_key, double in_value) {
  const KeyValueBlock& block = owned.problem.key_value[0];
  SetElement(block.key, {0, 0, kPlanted, 3}, in_key);
  SetElement(block.value, {0, 0, kPlanted, 2}, in_value);
}

// What takes the planted key out of some rows and leaves it in others.
struct Mask {
  const char* name;
  ProblemSpec (*specify)();
};

constexpr Mask kMasks[] = {
    {"valid_lens",
     [] {
       ProblemSpec spec = MaskedPrefill();
       spec.valid_lens = LengthsShape::kPerRow;
       return spec;
     }},
    {"attend_mask",
     [] {
       ProblemSpec spec = MaskedPrefill();
       spec.attend_mask = MaskExtents::kAll;
       return spec;
     }},
    {"attend_mask_of_decode",
     [] {
       ProblemSpec spec = MaskedDecode();
       spec.attend_mask = MaskExtents::kAll;
       return spec;
     }},
    {"bias",
     [] {
       ProblemSpec spec = MaskedPrefill();
       spec.bias = MaskExtents::kAll;
       spec.bias_masks = 0.5;
       return spec;
     }},
    {"bias_of_decode",
     [] {
       ProblemSpec spec = MaskedDecode();
       spec.bias = MaskExtents::kAll;
       spec.bias_masks = 0.5;
       return spec;
     }},
    {"causal",
     [] {
       ProblemSpec spec = MaskedPrefill();
       spec.causal = Causal::kTopLeft;
       spec.query_offset = kPlanted - 30;
       return spec;
     }},
    {"window",
     [] {
       ProblemSpec spec = MaskedPrefill();
       spec.window = {.left = 20, .right = 10};
       spec.query_offset = kPlanted - 30;
       return spec;
     }},
};

// Parameter: mask, scoring, type.
class NanBehindMasksTest
    : public ::testing::TestWithParam<std::tuple<Mask, ScoringKind, DataType>> {
 protected:
  // With and without weights: they are not computed alike.
  static void CheckPlanted(double in_key, double in_value) {
    const auto& [mask, scoring, type] = GetParam();
    for (const bool weights : {false, true}) {
      ProblemSpec spec = mask.specify();
      spec.scoring = scoring;
      spec.type = type;
      spec.wanted.weights = weights;
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      Plant(owned, in_key, in_value);
      CheckOnEveryTarget(owned.problem);
    }
  }
};

TEST_P(NanBehindMasksTest, NanInAMaskedKeyReachesNoOtherRow) {
  CheckPlanted(kNan, 0.5);
}

TEST_P(NanBehindMasksTest, NanInAMaskedValueReachesNoOtherRow) {
  CheckPlanted(0.5, kNan);
}

TEST_P(NanBehindMasksTest, InfinityInAMaskedValueReachesNoOtherRow) {
  CheckPlanted(0.5, -kInfinity);
}

std::string NameOfNanBehindMasksTest(
    const ::testing::TestParamInfo<NanBehindMasksTest::ParamType>& test) {
  const auto& [mask, scoring, type] = test.param;
  return absl::StrCat(mask.name, "_", NameOf(scoring), "_", Name(type));
}

INSTANTIATE_TEST_SUITE_P(
    All, NanBehindMasksTest,
    ::testing::Combine(::testing::ValuesIn(kMasks),
                       ::testing::ValuesIn(kAllScorings),
                       ::testing::Values(DataType::kFloat32, DataType::kFloat16,
                                         DataType::kBFloat16)),
    NameOfNanBehindMasksTest);

using NanTest = CpuTest;

TEST_P(NanTest, NanInAQueryStaysInItsRow) {
  for (const ScoringKind scoring : kAllScorings) {
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
      ProblemSpec spec = MaskedPrefill();
      spec.causal = Causal::kTopLeft;
      spec.scoring = scoring;
      spec.type = type;
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      SetElement(owned.problem.query, {0, 1, 40, 5}, kNan);
      Check(owned.problem);
    }
  }
}

TEST_P(NanTest, NanInAQueryOfDecodeStaysInItsHead) {
  const OwnedProblem owned = MakeProblem(MaskedDecode(), TestSeed());
  SetElement(owned.problem.query, {0, 1, 0, 5}, kNan);
  Check(owned.problem);
}

// A dropped key is left out like one that takes no part.
TEST_P(NanTest, NanInADroppedValueReachesNoRow) {
  for (ProblemSpec spec : {MaskedPrefill(), MaskedDecode()}) {
    spec.dropout = {.training = true, .p = 0.5, .seed = 3};
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    Plant(owned, 0.5, kNan);
    Check(owned.problem);
  }
}

TEST_P(NanTest, NanBeyondEveryLengthIsNotRead) {
  for (ProblemSpec spec : {MaskedPrefill(), MaskedDecode()}) {
    OwnedProblem owned = MakeProblem(spec, TestSeed());
    owned.problem.masks.valid_lens =
        owned.Add(DataType::kInt32, {1}, Layout::kRowMajor,
                  [](absl::Span<const int64_t>) { return kPlanted; });
    Plant(owned, kNan, kNan);
    Check(owned.problem);
  }
}

TEST_P(NanTest, NanInAMaskedTensorOfManyBlocksReachesNoOtherRow) {
  ProblemSpec spec = MaskedPrefill();
  spec.attend_mask = MaskExtents::kAll;
  OwnedProblem owned = MakeProblem(spec, TestSeed());
  Plant(owned, kNan, kNan);
  SplitIntoBlocks(owned.problem, 100);
  Check(owned.problem);
}

TEST_P(NanTest, AScoreOfInfinityGivesANanRow) {
  const OwnedProblem owned = MakeProblem(MaskedPrefill(), TestSeed());
  for (int64_t i = 0; i < 75; ++i) {
    SetElement(owned.problem.query, {0, 0, i, 3}, 1);
    SetElement(owned.problem.query, {0, 1, i, 3}, -1);
  }
  Plant(owned, kInfinity, 0.5);
  ASSERT_OK_AND_ASSIGN(const Results results, runner_.Run(owned.problem));
  const std::vector<double> lse = results.lse->ToDoubles();
  for (size_t i = 0; i < 75; ++i) {
    EXPECT_TRUE(std::isnan(lse[i])) << i;
    EXPECT_TRUE(std::isfinite(lse[75 + i])) << i;  // its weight is 0
  }
}

// Not 0, as of rows without keys: 1 - 2 / (e^(2 x) + 1) has lost the sign of x.
TEST_P(NanTest, InfinityInWvGivesNanRows) {
  for (const double value : {kInfinity, -kInfinity}) {
    ProblemSpec spec = MaskedPrefill();
    spec.scoring = ScoringKind::kAdditive;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    const auto& additive = std::get<Additive>(owned.problem.scoring);
    SetElement(additive.w_v, Shape(additive.w_v.rank(), 0), value);
    ASSERT_OK_AND_ASSIGN(const Results results, runner_.Run(owned.problem));
    EXPECT_THAT(results.output.ToDoubles(), Each(IsNan()));
  }
}

// The rows without keys average all values, the planted one among them.
TEST_P(NanTest, NanInAValueReachesUniformRows) {
  ProblemSpec spec = MaskedPrefill();
  spec.empty_rows = EmptyRows::kUniform;
  spec.causal = Causal::kTopLeft;
  spec.query_offset = -40;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  Plant(owned, 0.5, kNan);
  Check(owned.problem);
}

// What a row has gathered before a score that makes nothing of it: within a
// split, and in another one.
TEST_P(NanTest, InfinityInAValueStaysWhenALaterScoreIsMuchLarger) {
  for (const ProblemSpec& shape : {MaskedPrefill(), MaskedDecode()}) {
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
      ProblemSpec spec = shape;
      spec.type = type;
      spec.key_length = 1500;
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      Plant(owned, 0.5, kInfinity);
      for (int64_t h = 0; h < spec.query_heads; ++h) {
        for (int64_t i = 0; i < spec.query_length; ++i) {
          SetElement(owned.problem.query, {0, h, i, 3}, 100);
        }
      }
      SetElement(owned.problem.key_value[0].key, {0, 0, 1499, 3}, 100);
      Check(owned.problem);
    }
  }
}

INSTANTIATE_FOR_TARGETS(NanTest);

}  // namespace
}  // namespace attention::test
