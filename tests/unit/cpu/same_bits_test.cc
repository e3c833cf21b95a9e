// The same request gives the same bits, whatever stands beside it and however
// many threads there are.

#include <atomic>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {
namespace {

ProblemSpec SameBitsPrefill() {
  return {.batch = 1,
          .query_heads = 2,
          .kv_heads = 1,
          .query_length = 103,
          .key_length = 270,
          .width = 36,
          .value_width = 33};
}

ProblemSpec SameBitsDecode() {
  return {.batch = 1,
          .query_heads = 6,
          .kv_heads = 2,
          .query_length = 1,
          .key_length = 2500,
          .width = 64,
          .value_width = 64,
          .wanted = {.weights = false, .lse = true}};
}

class SameBitsTest : public CpuTest {
 protected:
  // Of a job that gives way again and again, and of what runs within.
  void ExpectSameBitsWithin(const ProblemSpec& spec);
};

// Row i of the output of head h.
std::vector<double> OutputRow(const Results& results, int64_t h, int64_t i) {
  TensorView row = Slice(results.output.view(), 1, h, h + 1);
  row = Slice(row, 2, i, i + 1);
  return Materialize(row).ToDoubles();
}

// Rows of zeros and of numbers beyond every other, beside rows that stay.
TEST_P(SameBitsTest, WhateverTheNeighboursHold) {
  ProblemSpec spec = SameBitsPrefill();
  spec.causal = Causal::kTopLeft;
  spec.query_offset = 100;
  const OwnedProblem plain = MakeProblem(spec, TestSeed());
  ASSERT_OK_AND_ASSIGN(const Results before, runner_.Run(plain.problem));
  for (const double number : {0.0, 1e-40, 1e6}) {
    const OwnedProblem changed = MakeProblem(spec, TestSeed());
    for (int64_t i = 0; i < spec.query_length; i += 2) {
      Fill(Slice(Slice(changed.problem.query, 1, 1, 2), 2, i, i + 1), number);
    }
    ASSERT_OK_AND_ASSIGN(const Results after, runner_.Run(changed.problem));
    for (int64_t i = 1; i < spec.query_length; i += 2) {
      EXPECT_EQ(OutputRow(before, 1, i), OutputRow(after, 1, i)) << i;
    }
  }
}

void SameBitsTest::ExpectSameBitsWithin(const ProblemSpec& spec) {
  ProblemSpec subnormals = SameBitsPrefill();
  subnormals.key_length = 65;
  subnormals.scale = 1e-30;
  const OwnedProblem outer = MakeProblem(spec, TestSeed());
  const OwnedProblem inner = MakeProblem(subnormals, TestSeed() + 1);
  ASSERT_OK_AND_ASSIGN(const Results outer_alone, runner_.Run(outer.problem));
  ASSERT_OK_AND_ASSIGN(const Results inner_alone, runner_.Run(inner.problem));
  std::atomic<int> tiles = 0;
  std::atomic<int> same = 0;
  runner_.BeforeTile([&] {
    ++tiles;
    const WorkerPool::InPlace one_thread;
    const auto within = TargetRunner(GetParam()).Run(inner.problem);
    if (within.ok() && SameBits(inner_alone, *within)) ++same;
  });
  ASSERT_OK_AND_ASSIGN(const Results interrupted, runner_.Run(outer.problem));
  EXPECT_GT(tiles, 1);
  EXPECT_EQ(same, tiles);
  EXPECT_TRUE(SameBits(outer_alone, interrupted));
  runner_.BeforeTile({});
}

// One job's scratch memory and arithmetic are not another's. It gives way
// between its tiles, and between projections.
TEST_P(SameBitsTest, OfAJobThatGivesWayAndOfWhatRunsWithin) {
  ProblemSpec projected = SameBitsPrefill();
  projected.query_length = 7;
  projected.key_length = 65;
  projected.width = 150;
  projected.hidden_width = 300;
  projected.scoring = ScoringKind::kAdditive;
  ExpectSameBitsWithin(SameBitsPrefill());
  ExpectSameBitsWithin(projected);
}

INSTANTIATE_FOR_TARGETS(SameBitsTest);

using SameBitsThreadsTest = CpuThreadsTest;

TEST_P(SameBitsThreadsTest, OfPrefill) {
  for (const ScoringKind scoring : kAllScorings) {
    ProblemSpec spec = SameBitsPrefill();
    spec.scoring = scoring;
    spec.sigma = 4;
    CheckThatBitsAreTheSame(MakeProblem(spec, TestSeed()).problem);
  }
}

TEST_P(SameBitsThreadsTest, OfDecodeWithSplitKeys) {
  for (const ScoringKind scoring : kAllScorings) {
    ProblemSpec spec = SameBitsDecode();
    spec.scoring = scoring;
    spec.sigma = 4;
    CheckThatBitsAreTheSame(MakeProblem(spec, TestSeed()).problem);
  }
}

TEST_P(SameBitsThreadsTest, OfManySmallEntries) {
  const ProblemSpec spec = {.batch = 64,
                            .query_length = 1,
                            .key_length = 16,
                            .width = 64,
                            .value_width = 64,
                            .wanted = {.weights = false, .lse = false}};
  CheckThatBitsAreTheSame(MakeProblem(spec, TestSeed()).problem);
}

TEST_P(SameBitsThreadsTest, OfSmallScores) {
  for (ProblemSpec spec : {SameBitsPrefill(), SameBitsDecode()}) {
    spec.scale = 1e-6;
    CheckThatBitsAreTheSame(MakeProblem(spec, TestSeed()).problem);
  }
}

TEST_P(SameBitsThreadsTest, OfWideRows) {
  ProblemSpec spec = SameBitsPrefill();
  spec.query_length = 20;
  spec.key_length = 40;
  spec.width = 640;
  spec.value_width = 1030;
  spec.hidden_width = 640;
  for (const ScoringKind scoring : kAllScorings) {
    spec.scoring = scoring;
    CheckThatBitsAreTheSame(MakeProblem(spec, TestSeed()).problem);
  }
}

INSTANTIATE_FOR_TARGETS(SameBitsThreadsTest);

}  // namespace
}  // namespace attention::test
