// Every backend against the oracle on random problems.

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"
#include "tests/support/factors.h"
#include "tests/support/random.h"

namespace attention::test {
namespace {

std::string SeedNote(uint64_t seed) {
  return absl::StrCat("ATTENTION_TEST_SEED=", seed);
}

TEST(CoveringArrayTest, HasEveryPairOfLevels) {
  const std::vector<Factor>& factors = Factors();
  for (size_t f = 0; f < factors.size(); ++f) {
    for (size_t g = f + 1; g < factors.size(); ++g) {
      std::vector<std::vector<bool>> seen(
          factors[f].levels.size(),
          std::vector<bool>(factors[g].levels.size(), false));
      for (const std::vector<int>& row : FactorRows()) {
        seen.at(row.at(f)).at(row.at(g)) = true;
      }
      for (size_t a = 0; a < seen.size(); ++a) {
        for (size_t b = 0; b < seen[a].size(); ++b) {
          EXPECT_TRUE(seen[a][b])
              << factors[f].name << " " << factors[f].levels[a].name << " with "
              << factors[g].name << " " << factors[g].levels[b].name;
        }
      }
    }
  }
}

// Parameter: backend, row of the covering array.
using PairwiseTest = ::testing::TestWithParam<std::tuple<std::string, size_t>>;

TEST_P(PairwiseTest, MatchesTheOracle) {
  const auto& [backend, row] = GetParam();
  SCOPED_TRACE(SeedNote(TestSeed()));
  SCOPED_TRACE(Describe(FactorRows()[row]));
  const OwnedProblem owned = MakeProblem(
      SpecFor(backend, SpecOf(FactorRows()[row])), TestSeed() + row);
  const auto engine = MakeEngine(backend);
  const AttentionProblem problem = WithoutRefused(*engine, owned.problem);
  ASSERT_OK_AND_ASSIGN(const Results results, RunOn(*engine, problem));
  EXPECT_TRUE(Matches(problem, results));
}

INSTANTIATE_TEST_SUITE_P(
    Differential, PairwiseTest,
    ::testing::Combine(::testing::ValuesIn(Backends()),
                       ::testing::Range(size_t{0}, FactorRows().size())),
    [](const auto& param) {
      return absl::StrCat(std::get<0>(param.param), "_row",
                          std::get<1>(param.param));
    });

class DifferentialTest : public BackendTest {
 protected:
  // Runs one problem of a specification and compares it with the oracle.
  void CheckSpec(const ProblemSpec& spec) {
    SCOPED_TRACE(SeedNote(TestSeed()));
    Check(MakeProblem(spec, TestSeed() + count_++).problem);
  }

 private:
  uint64_t count_ = 0;
};

TEST_P(DifferentialTest, AwkwardLengths) {
  for (const int64_t length :
       {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 129}) {
    SCOPED_TRACE(length);
    CheckSpec({.query_length = 3, .key_length = length});
    CheckSpec({.query_length = length, .key_length = 3});
  }
}

TEST_P(DifferentialTest, AwkwardWidths) {
  for (const int64_t width : {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 129}) {
    SCOPED_TRACE(width);
    CheckSpec({.width = width, .value_width = 3});
    CheckSpec({.width = 3, .value_width = width});
  }
}

TEST_P(DifferentialTest, RandomShapes) {
  Random random(TestSeed());
  for (int n = 0; n < 60; ++n) {
    const int64_t kv_heads = random.Between(1, 3);
    const ProblemSpec spec = {
        .rank = static_cast<int>(random.Between(2, 4)),
        .batch = random.Between(1, 4),
        .query_heads = kv_heads * random.Between(1, 4),
        .kv_heads = kv_heads,
        .query_length = random.Between(1, 40),
        .key_length = random.Between(1, 140),
        .width = random.Between(1, 40),
        .value_width = random.Between(1, 40),
        .keys_per_block = random.Chance(0.5) ? random.Between(1, 50) : 0,
        .valid_lens = LengthsShape::kPerRow,
        .causal = random.Chance(0.5) ? Causal::kBottomRight : Causal::kNone};
    SCOPED_TRACE(absl::StrCat("problem ", n));
    CheckSpec(spec.rank == 4 ? spec : [&] {
      ProblemSpec one_head = spec;
      one_head.query_heads = one_head.kv_heads = 1;
      return one_head;
    }());
  }
}

TEST_P(DifferentialTest, GaussianFarFromTheOrigin) {
  for (const bool masked : {false, true}) {
    ProblemSpec spec = {.query_length = 9,
                        .key_length = 65,
                        .width = 64,
                        .magnitudes = Magnitudes::kFarFromOrigin,
                        .spread = 0.1,
                        .centre = 100,
                        .scoring = ScoringKind::kGaussian};
    if (masked) spec.valid_lens = LengthsShape::kPerRow;
    CheckSpec(spec);
    spec.width = 1;
    spec.centre = 1000;
    spec.sigma = 0.1;
    CheckSpec(spec);
  }
}

TEST_P(DifferentialTest, MasksBroadcastFromEverySubsetOfExtents) {
  for (int rank = 2; rank <= 4; ++rank) {
    const ProblemSpec spec = {.rank = rank,
                              .batch = 2,
                              .query_heads = rank == 4 ? 6 : 1,
                              .kv_heads = rank == 4 ? 3 : 1,
                              .query_length = 5,
                              .key_length = 9};
    const Shape full = FullMaskShape(spec);
    for (int ones = 0; ones < 1 << rank; ++ones) {
      OwnedProblem owned = MakeProblem(spec, TestSeed());
      Random random(TestSeed() + static_cast<uint64_t>(ones));
      Shape shape = full;
      for (int extent = 0; extent < rank; ++extent) {
        if ((ones >> extent & 1) != 0) shape[extent] = 1;
      }
      SCOPED_TRACE(SeedNote(TestSeed()) + " mask " + ShapeToString(shape));
      owned.problem.masks.attend_mask =
          owned.Add(DataType::kBool, shape, Layout::kRowMajor,
                    [&](absl::Span<const int64_t>) {
                      return random.Chance(0.6) ? 1 : 0;
                    });
      Check(owned.problem);
      owned.problem.masks.attend_mask.reset();
      owned.problem.masks.bias =
          owned.Add(DataType::kFloat32, shape, Layout::kRowMajor,
                    [&](absl::Span<const int64_t>) { return random.Normal(); });
      Check(owned.problem);
    }
  }
}

TEST_P(DifferentialTest, BlocksOfKeysAreOneSequence) {
  for (const int64_t keys : {1, 16, 100}) {
    for (const int64_t length : {1, 99, 100, 101, 257}) {
      SCOPED_TRACE(absl::StrCat(length, " keys in blocks of ", keys));
      const ProblemSpec spec = {.query_heads = 4,
                                .kv_heads = 2,
                                .query_length = 6,
                                .key_length = length,
                                .valid_lens = LengthsShape::kPerRow,
                                .window = {.left = 70, .right = {}}};
      const OwnedProblem whole = MakeProblem(spec, TestSeed());
      OwnedProblem split = MakeProblem(spec, TestSeed());
      SplitIntoBlocks(split.problem, keys);
      const Expected expected = ComputeExpected(whole.problem);
      ASSERT_OK_AND_ASSIGN(const Results from_whole, Run(whole.problem));
      ASSERT_OK_AND_ASSIGN(const Results from_blocks, Run(split.problem));
      EXPECT_TRUE(Matches(whole.problem, expected, from_whole));
      EXPECT_TRUE(Matches(split.problem, expected, from_blocks));
    }
  }
}

INSTANTIATE_FOR_BACKENDS(DifferentialTest);

}  // namespace
}  // namespace attention::test
