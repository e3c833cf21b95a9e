// The kernels on the emulation, one way or another through them, against the
// oracle.

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/emulation/emulation.h"
#include "core/cuda/kernels/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/factors.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"
#include "tests/support/tolerance.h"
#include "tests/unit/cuda/kernels/kernel_run.h"

namespace attention::cuda::test {
namespace {

using attention::test::LengthsShape;
using attention::test::Magnitudes;
using attention::test::MakeProblem;
using attention::test::MaskExtents;
using attention::test::Matches;
using attention::test::OwnedProblem;
using attention::test::ProblemSpec;
using attention::test::SameBits;
using attention::test::ScoringKind;
using attention::test::TestSeed;

// The scores that a way computes.
std::vector<ScoringKind> ScoresOf(Way way) {
  if (way != Way::kAttend) return {ScoringKind::kDotProduct};
  return {ScoringKind::kDotProduct, ScoringKind::kAdditive,
          ScoringKind::kGaussian, ScoringKind::kBilinear};
}

// Parameter: way, row of the covering array.
using PairwiseKernelTest = ::testing::TestWithParam<std::tuple<Way, size_t>>;

TEST_P(PairwiseKernelTest, MatchesTheOracle) {
  const auto& [way, row] = GetParam();
  const auto& levels = attention::test::FactorRows()[row];
  ProblemSpec spec =
      attention::test::SpecFor("cuda", attention::test::SpecOf(levels));
  spec.wanted.top_k.reset();  // they are not for a device
  spec.wanted.key_weights = false;
  spec.wanted.scores.reset();
  if (way == Way::kMma || way == Way::kGemm) {
    spec.scoring = ScoringKind::kDotProduct;
    if (!spec.scale.has_value()) spec.scale = 0.4;
  }
  spec = FittedTo(way, spec, DataType::kBFloat16);
  SCOPED_TRACE(absl::StrCat("ATTENTION_TEST_SEED=", TestSeed()));
  SCOPED_TRACE(attention::test::Describe(levels));
  const OwnedProblem owned = MakeProblem(spec, TestSeed() + row);
  const RunOptions options = {.way = way, .shares_tiles = row % 2 == 0};
  EXPECT_TRUE(
      Matches(owned.problem, RunKernels(owned.problem, options).results));
}

INSTANTIATE_TEST_SUITE_P(
    Ways, PairwiseKernelTest,
    ::testing::Combine(::testing::Values(Way::kAttend, Way::kMma, Way::kGemm),
                       ::testing::Range(size_t{0},
                                        attention::test::FactorRows().size())),
    [](const auto& param) {
      return absl::StrCat(NameOf(std::get<0>(param.param)), "_row",
                          std::get<1>(param.param));
    });

// Parameter: the way, and whether keys are split.
class KernelTest : public ::testing::TestWithParam<std::tuple<Way, bool>> {
 protected:
  static Way way() { return std::get<0>(GetParam()); }
  static RunOptions Options() {
    return {.way = way(),
            .shares_tiles = true,
            .keys_per_split = std::get<1>(GetParam()) ? kSplitUnit : 0};
  }

  static void Check(const ProblemSpec& spec) {
    const OwnedProblem owned =
        MakeProblem(FittedTo(way(), spec, DataType::kFloat16), TestSeed());
    EXPECT_TRUE(
        Matches(owned.problem, RunKernels(owned.problem, Options()).results));
  }
};

TEST_P(KernelTest, LengthsAroundTiles) {
  for (const int64_t length : {1, 2, 31, 63, 64, 65, 127, 128, 129, 257}) {
    SCOPED_TRACE(length);
    Check({.batch = 1, .query_length = length, .key_length = 3});
    Check({.batch = 1, .query_length = 3, .key_length = length});
  }
}

TEST_P(KernelTest, WidthsAroundTiles) {
  for (const int64_t width :
       {1, 7, 8, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 256}) {
    SCOPED_TRACE(width);
    Check({.batch = 1, .width = width, .value_width = 3});
    Check({.batch = 1, .width = 3, .value_width = width});
  }
}

TEST_P(KernelTest, WideRowsOfEveryScore) {
  for (const ScoringKind scoring : ScoresOf(way())) {
    SCOPED_TRACE(static_cast<int>(scoring));
    Check({.batch = 1,
           .query_length = 5,
           .key_length = 70,
           .width = 131,
           .value_width = way() == Way::kMma ? kMmaLargestWidth : 259,
           .hidden_width = 67,
           .scoring = scoring});
  }
}

TEST_P(KernelTest, ManyRowsOfEveryClassOfWidths) {
  for (const int64_t width : {40, 104, 160}) {
    SCOPED_TRACE(width);
    Check({.batch = 1,
           .query_length = 130,
           .key_length = 170,
           .width = width,
           .value_width = width,
           .type = DataType::kBFloat16,
           .causal = Causal::kTopLeft});
  }
}

TEST_P(KernelTest, CausalRowsOverManyTiles) {
  Check({.batch = 2,
         .query_heads = 4,
         .kv_heads = 2,
         .query_length = 150,
         .key_length = 300,
         .width = 33,
         .value_width = 40,
         .causal = Causal::kBottomRight});
}

TEST_P(KernelTest, WindowsThatBeginWithinATile) {
  Check({.query_heads = 2,
         .kv_heads = 1,
         .query_length = 90,
         .key_length = 310,
         .query_offset = 200,
         .window = {.left = 70, .right = 5}});
}

TEST_P(KernelTest, FewRowsOfAnyNumberOfKeys) {
  for (const int64_t width : {40, 104, 160}) {
    for (const int64_t keys :
         {1, 15, 16, 17, 31, 32, 33, 64, 65, 96, 127, 128, 129, 255, 257}) {
      SCOPED_TRACE(absl::StrCat(width, " ", keys));
      Check({.query_heads = 4,
             .query_length = 2,
             .key_length = keys,
             .width = width,
             .value_width = width,
             .valid_lens = LengthsShape::kPerRow});
    }
  }
}

// Warps that share rows have a fourth of a tile's keys each.
TEST_P(KernelTest, FewRowsWhoseKeysAreNotEveryWarps) {
  for (const int64_t width : {40, 104, 160}) {
    for (const int64_t offset : {0, 3, 30, 40, 70, 100, 127, 140, 190, 400}) {
      SCOPED_TRACE(absl::StrCat(width, " ", offset));
      Check({.query_heads = 4,
             .query_length = 3,
             .key_length = 200,
             .width = width,
             .value_width = width,
             .query_offset = offset,
             .window = {.left = 4, .right = 0},
             .sinks = attention::test::PerHeadShape::kPerHead});
    }
  }
}

TEST_P(KernelTest, MasksAndBiasesOfAnyLayout) {
  for (const MaskExtents extents : {MaskExtents::kAll, MaskExtents::kSomeOnes,
                                    MaskExtents::kFewerDimensions}) {
    for (const int64_t keys : {65, 144}) {
      SCOPED_TRACE(absl::StrCat(static_cast<int>(extents), " ", keys));
      ProblemSpec spec = {.query_length = 70,
                          .key_length = keys,
                          .width = 16,
                          .attend_mask = extents,
                          .bias = extents,
                          .bias_masks = 0.2};
      Check(spec);
      spec.bias_in_query_type = true;
      Check(spec);
      spec.width = 200;
      Check(spec);
    }
  }
}

TEST_P(KernelTest, ScoresOfAnyCap) {
  for (const double softcap : {1e-3, 0.5, 30.0, 1e30}) {
    SCOPED_TRACE(softcap);
    Check({.query_length = 70,
           .key_length = 100,
           .softcap = softcap,
           .causal = Causal::kBottomRight});
  }
}

TEST_P(KernelTest, AFactorOfZeroAveragesTheKeysThatTakePart) {
  Check({.query_length = 70,
         .key_length = 100,
         .scale = 0,
         .causal = Causal::kTopLeft});
}

TEST_P(KernelTest, LengthsPerRow) {
  Check({.query_heads = 2,
         .kv_heads = 1,
         .query_length = 70,
         .key_length = 200,
         .valid_lens = LengthsShape::kPerRow,
         .bias = MaskExtents::kAll,
         .dropout = {.training = true, .p = 0.3, .seed = 5}});
}

// Philox gives four keys their words, and a block takes stretches of keys: from
// any key on, and in rows of which all keys weigh the same.
TEST_P(KernelTest, DropoutOfAnyNumberOfKeys) {
  for (const int64_t keys : {1, 3, 4, 5, 127, 511, 512, 513, 1030}) {
    SCOPED_TRACE(keys);
    ProblemSpec spec = {.query_length = 5,
                        .key_length = keys,
                        .causal = Causal::kBottomRight,
                        .dropout = {.training = true, .p = 0.3, .seed = 5},
                        .empty_rows = EmptyRows::kUniform};
    Check(spec);
    spec.window.left = 510;
    spec.wanted.weights_after_dropout = true;
    Check(spec);
    spec.window = {};
    spec.valid_lens = LengthsShape::kPerRow;
    Check(spec);
  }
}

TEST_P(KernelTest, ThreadsMayRunInAnyOrder) {
  ProblemSpec spec = {
      .query_heads = 2,
      .kv_heads = 1,
      .query_length = 70,
      .key_length = 150,
      .width = 40,
      .value_width = 70,
      .type = way() == Way::kMma ? DataType::kBFloat16 : DataType::kFloat32,
      .valid_lens = LengthsShape::kPerRow};
  for (const ScoringKind scoring : ScoresOf(way())) {
    spec.scoring = scoring;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    const KernelResults up = RunKernels(owned.problem, Options());
    emulation::SetOrder(emulation::Order::kDescending);
    const KernelResults down = RunKernels(owned.problem, Options());
    emulation::SetOrder(emulation::Order::kAscending);
    EXPECT_TRUE(SameBits(up.results, down.results));
    EXPECT_EQ(up.marked_rows, down.marked_rows);
  }
}

std::string NameOfWay(
    const ::testing::TestParamInfo<KernelTest::ParamType>& info) {
  return NameOf(std::get<0>(info.param)) +
         (std::get<1>(info.param) ? "_split" : "");
}

INSTANTIATE_TEST_SUITE_P(Ways, KernelTest,
                         ::testing::Values(std::tuple(Way::kAttend, false),
                                           std::tuple(Way::kAttend, true),
                                           std::tuple(Way::kMma, false),
                                           std::tuple(Way::kMma, true),
                                           std::tuple(Way::kGemm, false)),
                         NameOfWay);

TEST(AdditiveKernelTest, ProjectionsThatCancel) {
  const OwnedProblem owned =
      MakeProblem({.query_length = 9,
                   .key_length = 65,
                   .width = 64,
                   .hidden_width = 40,
                   .magnitudes = Magnitudes::kFarFromOrigin,
                   .scoring = ScoringKind::kAdditive},
                  TestSeed());
  EXPECT_TRUE(Matches(owned.problem, RunKernels(owned.problem).results));
}

TEST(AdditiveKernelTest, ProjectionsOfAnySize) {
  for (const double spread : {1e-30, 1e-3, 50.0, 1e4, 1e30}) {
    SCOPED_TRACE(spread);
    const OwnedProblem owned = MakeProblem({.query_length = 9,
                                            .key_length = 65,
                                            .width = 16,
                                            .hidden_width = 40,
                                            .spread = spread,
                                            .scoring = ScoringKind::kAdditive},
                                           TestSeed());
    EXPECT_TRUE(Matches(owned.problem, RunKernels(owned.problem).results));
  }
}

}  // namespace
}  // namespace attention::cuda::test
