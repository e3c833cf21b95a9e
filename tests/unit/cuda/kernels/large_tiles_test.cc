// Tiles of 128 rows and keys, which `attend` has for products of FP32 numbers
// in blocks of many rows, against the oracle.

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/emulation/emulation.h"
#include "core/cuda/kernels/limits.h"
#include "gtest/gtest.h"
#include "tests/support/factors.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"
#include "tests/support/tolerance.h"
#include "tests/unit/cuda/kernels/kernel_run.h"

namespace attention::cuda::test {
namespace {

using attention::test::Describe;
using attention::test::Extents;
using attention::test::Factor;
using attention::test::LengthsShape;
using attention::test::MakeProblem;
using attention::test::Matches;
using attention::test::OwnedProblem;
using attention::test::PairwiseRows;
using attention::test::ProblemSpec;
using attention::test::SameBits;
using attention::test::ScoringKind;
using attention::test::TestSeed;
using S = ProblemSpec;

constexpr int64_t kLeastRows = 2 * kAttendRows;

TEST(LargeTilesTest, AreThoseOfManyRowsOfProductsInFp32) {
  AttentionArgs args;
  args.query_heads = args.query.heads = args.key.heads = args.value.heads = 1;
  args.query_length = kLeastRows - 1;
  EXPECT_EQ(AttendSide(args), 1);
  args.query_length = kLeastRows;
  EXPECT_EQ(AttendSide(args), 2);
  args.value.type = Element::kFloat16;
  EXPECT_EQ(AttendSide(args), 1);
  args.value.type = Element::kFloat32;
  args.score = Score::kGaussian;
  EXPECT_EQ(AttendSide(args), 1);
  args.score = Score::kDot;
  args.most_shared_bytes = int64_t{48} << 10;
  EXPECT_EQ(AttendSide(args), 1);
}

// Every option with every other and with extents around tiles.
const std::vector<Factor>& LargeFactors() {
  static const auto* const kFactors = [] {
    auto* const factors =
        new std::vector<Factor>(attention::test::OptionFactors());
    factors->push_back(
        Extents<&S::query_length, kLeastRows, 129, 191, 257>("Lq"));
    factors->push_back(
        Extents<&S::key_length, 1, 63, 64, 65, 127, 128, 129, 193, 257>("Lk"));
    factors->push_back(Extents<&S::width, 1, 5, 16, 17, 32, 40>("Dq"));
    factors->push_back(Extents<&S::value_width, 1, 7, 64, 65, 128, 131>("Dv"));
    return factors;
  }();
  return *kFactors;
}

const std::vector<std::vector<int>>& Rows() {
  static const auto* const kRows =
      new std::vector<std::vector<int>>(PairwiseRows(LargeFactors()));
  return *kRows;
}

// Parameter: row of the covering array.
using PairwiseLargeTilesTest = ::testing::TestWithParam<size_t>;

TEST_P(PairwiseLargeTilesTest, MatchesTheOracle) {
  const auto& row = Rows()[GetParam()];
  ProblemSpec spec = SpecFor("cuda", SpecOf(LargeFactors(), row));
  spec.batch = 1;
  spec.type = DataType::kFloat32;
  spec.scoring = ScoringKind::kDotProduct;
  if (!spec.scale.has_value()) spec.scale = 0.4;
  spec.wanted.top_k.reset();  // they are not for a device
  spec.wanted.key_weights = false;
  spec.wanted.scores.reset();
  spec = SpecFor("cuda", spec);
  SCOPED_TRACE(absl::StrCat("ATTENTION_TEST_SEED=", TestSeed()));
  SCOPED_TRACE(Describe(LargeFactors(), row));
  const OwnedProblem owned = MakeProblem(spec, TestSeed() + GetParam());
  const RunOptions options = {
      .shares_tiles = GetParam() % 2 == 0,
      .keys_per_split = GetParam() % 3 == 0 ? kSplitUnit : 0};
  EXPECT_TRUE(
      Matches(owned.problem, RunKernels(owned.problem, options).results));
}

INSTANTIATE_TEST_SUITE_P(Rows, PairwiseLargeTilesTest,
                         ::testing::Range(size_t{0}, Rows().size()));

TEST(LargeTilesTest, LengthsAroundTiles) {
  for (const int64_t rows : {128, 129, 257}) {
    for (const int64_t keys : {1, 63, 64, 65, 127, 128, 129, 193, 257}) {
      SCOPED_TRACE(absl::StrCat(rows, " ", keys));
      const OwnedProblem owned = MakeProblem(
          {.batch = 1, .query_length = rows, .key_length = keys}, TestSeed());
      EXPECT_TRUE(Matches(owned.problem, RunKernels(owned.problem).results));
    }
  }
}

TEST(LargeTilesTest, WidthsAroundStages) {
  for (const auto& [width, value_width] :
       {std::pair(1, 200), std::pair(3, 129), std::pair(15, 128),
        std::pair(16, 127), std::pair(17, 65), std::pair(33, 64),
        std::pair(64, 63), std::pair(65, 4), std::pair(130, 1)}) {
    SCOPED_TRACE(width);
    const OwnedProblem owned = MakeProblem({.batch = 1,
                                            .query_length = 131,
                                            .key_length = 150,
                                            .width = width,
                                            .value_width = value_width},
                                           TestSeed());
    EXPECT_TRUE(Matches(owned.problem, RunKernels(owned.problem).results));
  }
}

TEST(LargeTilesTest, ThreadsMayRunInAnyOrder) {
  const OwnedProblem owned = MakeProblem({.query_heads = 2,
                                          .kv_heads = 1,
                                          .query_length = 130,
                                          .key_length = 300,
                                          .width = 40,
                                          .value_width = 70,
                                          .valid_lens = LengthsShape::kPerRow},
                                         TestSeed());
  const KernelResults up = RunKernels(owned.problem);
  emulation::SetOrder(emulation::Order::kDescending);
  const KernelResults down = RunKernels(owned.problem);
  emulation::SetOrder(emulation::Order::kAscending);
  EXPECT_TRUE(SameBits(up.results, down.results));
}

}  // namespace
}  // namespace attention::cuda::test
