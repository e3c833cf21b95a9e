// Values that are not finite, on every way through the kernels: they reach the
// rows in which their keys take part and no other.

#include <cstdint>
#include <string>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"
#include "tests/support/special_numbers.h"
#include "tests/support/tolerance.h"
#include "tests/unit/cuda/kernels/kernel_run.h"

namespace attention::cuda::test {
namespace {

using attention::test::Fill;
using attention::test::kInfinity;
using attention::test::kNan;
using attention::test::MakeProblem;
using attention::test::Matches;
using attention::test::OwnedProblem;
using attention::test::ProblemSpec;
using attention::test::SetElement;
using attention::test::Slice;
using attention::test::TestSeed;
using ::testing::Each;

constexpr int64_t kLength = 150;

// Parameter: the way, and whether keys are split.
class RecomputeTest : public ::testing::TestWithParam<std::tuple<Way, bool>> {
 protected:
  // As many keys as rows, row i reading keys 0 ... i.
  RecomputeTest() {
    spec_ = FittedTo(way(),
                     {.batch = 2,
                      .query_heads = 2,
                      .kv_heads = 1,
                      .query_length = kLength,
                      .key_length = kLength,
                      .width = 32,
                      .value_width = 70,
                      .causal = Causal::kTopLeft},
                     DataType::kBFloat16);
  }

  static Way way() { return std::get<0>(GetParam()); }
  void Make() { owned_ = MakeProblem(spec_, TestSeed()); }
  void Plant(int64_t key, int64_t column, double value) {
    SetElement(owned_.problem.key_value[0].value, {0, 0, key, column}, value);
  }
  // A key of the first batch entry.
  TensorView KeyRow(int64_t key) const {
    const TensorView& keys = owned_.problem.key_value[0].key;
    return Slice(Slice(keys, 0, 0, 1), 2, key, key + 1);
  }
  KernelResults Compute() const {
    return RunKernels(
        owned_.problem,
        {.way = way(),
         .shares_tiles = true,
         .keys_per_split = std::get<1>(GetParam()) ? kSplitUnit : 0});
  }
  // How many rows were marked.
  int64_t Check() {
    const KernelResults results = Compute();
    EXPECT_TRUE(Matches(owned_.problem, results.results));
    return results.marked_rows;
  }

  ProblemSpec spec_;
  OwnedProblem owned_;
};

TEST_P(RecomputeTest, FiniteRowsAreNotLookedAtAgain) {
  Make();
  EXPECT_EQ(Check(), 0);
}

TEST_P(RecomputeTest, NanReachesTheRowsThatReadIt) {
  Make();
  Plant(20, 1, kNan);
  Plant(140, 69, kNan);
  EXPECT_GE(Check(), 2 * (kLength - 20));
}

TEST_P(RecomputeTest, InfinitiesAddUp) {
  Make();
  Plant(20, 1, kInfinity);
  Plant(70, 1, -kInfinity);  // NaN from here on
  Plant(30, 2, -kInfinity);
  Check();
}

TEST_P(RecomputeTest, AWeightThatUnderflowsCarriesInfinity) {
  spec_.scale = 10;
  Make();
  for (int64_t key = 0; key < kLength; key += 10) {
    Plant(key, key / 10, kInfinity);
  }
  Check();
}

TEST_P(RecomputeTest, DroppedKeysCarryNothing) {
  spec_.dropout = {.training = true, .p = 0.5, .seed = 7};
  Make();
  for (int64_t key = 0; key < kLength; key += 10) {
    Plant(key, key / 10, kNan);
  }
  Check();
}

TEST_P(RecomputeTest, MaskedKeysCarryNothing) {
  spec_.attend_mask = attention::test::MaskExtents::kAll;
  spec_.bias = attention::test::MaskExtents::kAll;
  spec_.bias_masks = 0.3;
  Make();
  for (int64_t key = 0; key < kLength; key += 10) {
    Plant(key, key / 10, kNan);
  }
  Check();
}

TEST_P(RecomputeTest, AveragedRowsHaveAllValues) {
  spec_.query_offset = -70;  // no key for the rows before it
  spec_.empty_rows = EmptyRows::kUniform;
  spec_.dropout = {.training = true, .p = 0.3, .seed = 7};
  Make();
  EXPECT_EQ(Check(), 2 * 2 * 70);
  Plant(140, 3, kNan);
  Check();
}

TEST_P(RecomputeTest, NanScoresNeedNoSecondLook) {
  Make();
  SetElement(owned_.problem.query, {0, 0, 7, 3}, kNan);
  SetElement(owned_.problem.key_value[0].key, {1, 0, 100, 3}, kNan);
  const int64_t marked = Check();
  if (way() != Way::kGemm) {  // where nothing is known of scores any more
    EXPECT_EQ(marked, 0);
  }
}

TEST_P(RecomputeTest, ScoresOfMinusInfinityCarryNothing) {
  spec_.empty_rows = EmptyRows::kUniform;  // the first row has no other key
  Make();
  Fill(owned_.problem.query, 0.5);
  for (int64_t key = 0; key < kLength; key += 10) {
    Fill(KeyRow(key), -kInfinity);
    if (key > 0) Plant(key, key / 10, kNan);
  }
  EXPECT_GT(Check(), 0);
}

// Sums that are finite: the scores are not.
TEST_P(RecomputeTest, ScoresThatTheScaleMakesMinusInfinityCarryNothing) {
  spec_.scale = 8;
  Make();
  Fill(owned_.problem.query, 0);
  Fill(Slice(owned_.problem.query, 3, 0, 1), 1e19);
  Fill(owned_.problem.key_value[0].key, -1e19);
  Plant(0, 1, kNan);
  const KernelResults results = Compute();
  EXPECT_THAT(results.results.output.ToDoubles(), Each(0));
  EXPECT_THAT(results.results.lse->ToDoubles(), Each(-kInfinity));
}

std::string NameOfRecomputeTest(
    const ::testing::TestParamInfo<RecomputeTest::ParamType>& info) {
  const auto [way, splits] = info.param;
  return NameOf(way) + (splits ? "_split" : "");
}

INSTANTIATE_TEST_SUITE_P(Ways, RecomputeTest,
                         ::testing::Values(std::tuple(Way::kAttend, false),
                                           std::tuple(Way::kAttend, true),
                                           std::tuple(Way::kMma, false),
                                           std::tuple(Way::kMma, true),
                                           std::tuple(Way::kGemm, false)),
                         NameOfRecomputeTest);

}  // namespace
}  // namespace attention::cuda::test
