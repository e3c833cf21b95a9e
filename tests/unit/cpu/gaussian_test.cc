// Gaussian scores depend on distances alone: not on where the points lie, nor
// on which of the keys that take no part lie far away.

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/special_numbers.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {
namespace {

using GaussianTest = CpuTest;

ProblemSpec Gaussian(int64_t width) {
  return {.batch = 1,
          .query_heads = 2,
          .kv_heads = 1,
          .query_length = 43,
          .key_length = 150,
          .width = width,
          .value_width = 9,
          .scoring = ScoringKind::kGaussian};
}

// Moves rows `begin` to `end` of a view of four extents by `offset`.
void Move(const TensorView& view, int64_t begin, int64_t end, double offset) {
  const TensorView rows = Slice(view, 2, begin, end);
  const std::vector<double> numbers = Materialize(rows).ToDoubles();
  int64_t n = 0;
  ForEachIndex(rows.shape, [&](absl::Span<const int64_t> index) {
    SetElement(rows, index, numbers[n++] + offset);
  });
}

TEST_P(GaussianTest, PointsFarFromTheOrigin) {
  for (const int64_t width : {1, 3, 36, 64}) {
    for (const double centre : {100.0, 1000.0, -3e4}) {
      ProblemSpec spec = Gaussian(width);
      spec.magnitudes = Magnitudes::kFarFromOrigin;
      spec.centre = centre;
      spec.spread = 0.1;
      spec.sigma = 0.1;
      Check(spec);
      EXPECT_FALSE(runner_.kernel().empty());
    }
  }
}

// Each row attends the cluster that it lies in: queries and keys of the second
// half lie far from the first.
TEST_P(GaussianTest, RowsOfTwoTightClustersFarApart) {
  for (const int64_t width : {3, 36}) {
    for (const double distance : {10.0, 1000.0}) {
      ProblemSpec spec = Gaussian(width);
      spec.spread = 0.05;
      spec.sigma = 0.05;
      spec.attend_mask = MaskExtents::kFewerDimensions;
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      const int64_t queries = spec.query_length / 2;
      const int64_t keys = spec.key_length / 2;
      Move(owned.problem.query, queries, spec.query_length, distance);
      Move(owned.problem.key_value[0].key, keys, spec.key_length, distance);
      const TensorView& mask = *owned.problem.masks.attend_mask;
      ForEachIndex(mask.shape, [&](absl::Span<const int64_t> at) {
        SetElement(mask, at, (at[0] < queries) == (at[1] < keys) ? 1 : 0);
      });
      Check(owned.problem);
      EXPECT_FALSE(runner_.kernel().empty());
    }
  }
}

// The nearest cluster takes all the weight.
TEST_P(GaussianTest, RowsThatAttendBothOfTwoTightClusters) {
  for (const int64_t width : {3, 36}) {
    ProblemSpec spec = Gaussian(width);
    spec.spread = 0.05;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    Move(owned.problem.query, 20, spec.query_length, 50);
    Move(owned.problem.key_value[0].key, 75, spec.key_length, 50);
    Check(owned.problem);
  }
}

// Rows with all their weight on a key have no room for what a centre far from
// it costs.
TEST_P(GaussianTest, RowsNearOneOfFewKeys) {
  for (const int64_t keys : {2, 3, 4, 7, 8}) {
    ProblemSpec spec = Gaussian(16);
    spec.query_length = 10'000;
    spec.key_length = keys;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    const TensorView& query = owned.problem.query;
    const std::vector<double> key =
        Materialize(owned.problem.key_value[0].key).ToDoubles();
    const std::vector<double> noise = Materialize(query).ToDoubles();
    int64_t n = 0;
    ForEachIndex(query.shape, [&](absl::Span<const int64_t> at) {
      SetElement(query, at, key[at[3]] + 0.5 * noise[n++]);
    });
    Check(owned.problem);
  }
}

TEST_P(GaussianTest, OneKeyFarFromAllOthers) {
  for (const int64_t width : {3, 36}) {
    for (const int64_t key : {0, 77, 149}) {
      ProblemSpec spec = Gaussian(width);
      spec.magnitudes = Magnitudes::kFarFromOrigin;
      spec.sigma = 0.3;
      spec.spread = 0.3;
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      Fill(Slice(owned.problem.key_value[0].key, 2, key, key + 1), 0);
      Check(owned.problem);
    }
  }
}

TEST_P(GaussianTest, OneQueryFarFromEveryKey) {
  for (const double place : {50.0, 1e4, 1e15}) {
    const OwnedProblem owned = MakeProblem(Gaussian(36), TestSeed());
    Fill(Slice(owned.problem.query, 2, 5, 6), place);
    Check(owned.problem);
  }
}

// The first keys, which a centre might be taken from, take no part and are far
// away, or no place at all.
TEST_P(GaussianTest, KeysThatTakeNoPartMayLieAnywhere) {
  for (const double place : {1e3, 1e15, 3e38, kInfinity, kNan}) {
    for (const bool by_bias : {false, true}) {
      ProblemSpec spec = Gaussian(12);
      spec.wanted.weights = by_bias;
      spec.attend_mask = by_bias ? MaskExtents::kNone : MaskExtents::kAll;
      spec.bias = by_bias ? MaskExtents::kAll : MaskExtents::kNone;
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      const Masks& masks = owned.problem.masks;
      for (int64_t j = 0; j < spec.key_length; ++j) {
        if (j % 3 == 2) continue;
        if (by_bias) Fill(Slice(*masks.bias, 3, j, j + 1), -kInfinity);
        if (!by_bias) Fill(Slice(*masks.attend_mask, 3, j, j + 1), 0);
        Fill(Slice(owned.problem.key_value[0].key, 2, j, j + 1), place);
      }
      Check(owned.problem);
    }
  }
}

TEST_P(GaussianTest, SigmasNearTheEndsOfTheRange) {
  for (const double sigma : {1e-15, 1e-3, 1e4, 1e18, 1e30}) {
    for (const int64_t width : {3, 36}) {
      ProblemSpec spec = Gaussian(width);
      spec.sigma = sigma;
      Check(spec);
    }
  }
}

// Infinitely far: it takes no part, whatever side the query is on.
TEST_P(GaussianTest, AnInfiniteKeyIsInfinitelyFar) {
  for (const double infinity : {kInfinity, -kInfinity}) {
    const OwnedProblem owned = MakeProblem(Gaussian(36), TestSeed());
    SetElement(owned.problem.key_value[0].key, {0, 0, 70, 5}, infinity);
    Check(owned.problem);
  }
}

INSTANTIATE_FOR_TARGETS(GaussianTest);

}  // namespace
}  // namespace attention::test
