// Rows whose scores are all close to 0: their tolerance has no room for sums in
// FP32.

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {
namespace {

using FlatRowsTest = CpuTest;

// Several tiles, blocks of rows that do not fill their last group, heads that
// share keys.
ProblemSpec Prefill() {
  return {.batch = 1,
          .query_heads = 2,
          .kv_heads = 1,
          .query_length = 75,
          .key_length = 270,
          .width = 36,
          .value_width = 33,
          .scale = 1e-6};
}

ProblemSpec Decode() {
  return {.batch = 1,
          .query_heads = 6,
          .kv_heads = 2,
          .query_length = 1,
          .key_length = 2500,
          .width = 64,
          .value_width = 64,
          .scale = 1e-6,
          .wanted = {.weights = false, .lse = true}};
}

TEST_P(FlatRowsTest, ZeroQueries) {
  for (ProblemSpec spec : {Prefill(), Decode()}) {
    spec.scale = 1;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    Fill(owned.problem.query, 0);
    Check(owned.problem);
  }
}

// They have the results of others like them, but only over the same keys.
TEST_P(FlatRowsTest, ZeroQueriesOverDifferentKeys) {
  for (const Causal causal : {Causal::kNone, Causal::kBottomRight}) {
    ProblemSpec spec = Prefill();
    spec.batch = 2;
    spec.kv_heads = 2;
    spec.causal = causal;
    spec.scale = 1;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    Fill(owned.problem.query, 0);
    Check(owned.problem);
  }
}

TEST_P(FlatRowsTest, ZeroQueriesOfEveryScoring) {
  for (const ScoringKind scoring :
       {ScoringKind::kAdditive, ScoringKind::kGaussian,
        ScoringKind::kBilinear}) {
    ProblemSpec spec = Prefill();
    spec.scoring = scoring;
    spec.per_head_parameters = true;
    spec.scale = 1;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    Fill(owned.problem.query, 0);
    Check(owned.problem);
  }
}

TEST_P(FlatRowsTest, ZeroKeys) {
  for (ProblemSpec spec : {Prefill(), Decode()}) {
    spec.scale = 1;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    Fill(owned.problem.key_value[0].key, 0);
    Check(owned.problem);
  }
}

TEST_P(FlatRowsTest, ConstantKeys) {
  for (const double value : {1e-3, 0.1, 3.0}) {
    ProblemSpec spec = Prefill();
    spec.scale = {};
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    Fill(owned.problem.key_value[0].key, value);
    Check(owned.problem);
  }
}

TEST_P(FlatRowsTest, ScalesOfZeroAndCloseToIt) {
  for (const double scale : {0.0, 1e-30, 1e-6, 1e-3, 1e-2}) {
    for (ProblemSpec spec : {Prefill(), Decode()}) {
      spec.scale = scale;
      Check(spec);
    }
  }
}

TEST_P(FlatRowsTest, WithoutWeights) {
  ProblemSpec spec = Prefill();
  spec.wanted = {};
  Check(spec);
}

TEST_P(FlatRowsTest, EveryTypeWithWeights) {
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    ProblemSpec spec = Prefill();
    spec.type = type;
    Check(spec);
  }
}

TEST_P(FlatRowsTest, AdditiveWithSmallWeights) {
  for (const double w_v : {0.0, 1e-7, 1e-3}) {
    for (const double spread : {1.0, 30.0}) {
      ProblemSpec spec = Prefill();
      spec.scoring = ScoringKind::kAdditive;
      spec.spread = spread;
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      Fill(std::get<Additive>(owned.problem.scoring).w_v, w_v);
      Check(owned.problem);
    }
  }
}

TEST_P(FlatRowsTest, AdditiveWithParametersPerHead) {
  ProblemSpec spec = Prefill();
  spec.scoring = ScoringKind::kAdditive;
  spec.per_head_parameters = true;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  Fill(std::get<Additive>(owned.problem.scoring).w_v, 1e-3);
  Check(owned.problem);
}

TEST_P(FlatRowsTest, Bilinear) {
  for (const bool per_head : {false, true}) {
    ProblemSpec spec = Prefill();
    spec.scoring = ScoringKind::kBilinear;
    spec.per_head_parameters = per_head;
    Check(spec);
  }
}

// Few dimensions are scored by differences, many by a dot product.
TEST_P(FlatRowsTest, GaussianOfLargeSigma) {
  for (const int64_t width : {3, 36}) {
    ProblemSpec spec = Prefill();
    spec.scoring = ScoringKind::kGaussian;
    spec.width = width;
    spec.sigma = 1e4;
    Check(spec);
  }
}

TEST_P(FlatRowsTest, Softcap) {
  ProblemSpec spec = Prefill();
  spec.softcap = 2;
  Check(spec);
}

TEST_P(FlatRowsTest, SmallBias) {
  ProblemSpec spec = Prefill();
  spec.bias = MaskExtents::kAll;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  const TensorView& bias = *owned.problem.masks.bias;
  ForEachIndex(bias.shape, [&](absl::Span<const int64_t> index) {
    SetElement(bias, index, 1e-3 * static_cast<double>(index[3] % 7));
  });
  Check(owned.problem);
}

TEST_P(FlatRowsTest, EveryMask) {
  ProblemSpec spec = Prefill();
  spec.valid_lens = LengthsShape::kPerRow;
  Check(spec);
  spec.causal = Causal::kBottomRight;
  Check(spec);
  spec.window.left = 50;
  Check(spec);
  spec.attend_mask = MaskExtents::kAll;
  spec.bias = MaskExtents::kAll;
  spec.bias_masks = 0.2;
  Check(spec);
}

TEST_P(FlatRowsTest, Dropout) {
  for (const bool after : {false, true}) {
    ProblemSpec spec = Prefill();
    spec.dropout = {.training = true, .p = 0.3, .seed = 7};
    spec.wanted.weights_after_dropout = after;
    Check(spec);
  }
}

TEST_P(FlatRowsTest, BlocksOfKeysAndOddLayouts) {
  for (const Layout layout :
       {Layout::kLengthFirst, Layout::kMisaligned, Layout::kReversed}) {
    ProblemSpec spec = Prefill();
    spec.layout = layout;
    spec.keys_per_block = 50;
    Check(spec);
  }
}

TEST_P(FlatRowsTest, GroupsThatReachIntoTheNextHead) {
  ProblemSpec spec = Prefill();
  spec.batch = 2;
  spec.query_heads = 6;
  spec.kv_heads = 2;
  spec.query_length = 7;
  spec.dropout = {.training = true, .p = 0.3, .seed = 7};
  Check(spec);
}

// Row i of the output of head h.
std::vector<double> OutputRow(const Results& results, int64_t h, int64_t i) {
  TensorView row = Slice(results.output.view(), 1, h, h + 1);
  row = Slice(row, 2, i, i + 1);
  return Materialize(row).ToDoubles();
}

TEST_P(FlatRowsTest, SameBitsWhateverTheNeighbours) {
  ProblemSpec spec = Prefill();
  spec.scale = 1;
  spec.causal = Causal::kTopLeft;
  spec.query_offset = 100;
  const OwnedProblem few = MakeProblem(spec, TestSeed());
  const OwnedProblem many = MakeProblem(spec, TestSeed());
  const auto flatten = [&spec](const OwnedProblem& owned, int64_t i) {
    for (int64_t d = 0; d < spec.width; ++d) {
      SetElement(owned.problem.query, {0, 1, i, d}, 0);
    }
  };
  flatten(few, 20);
  for (int64_t i = 0; i < spec.query_length; i += 2) flatten(many, i);
  ASSERT_OK_AND_ASSIGN(const Results of_few, runner_.Run(few.problem));
  ASSERT_OK_AND_ASSIGN(const Results of_many, runner_.Run(many.problem));
  EXPECT_EQ(OutputRow(of_few, 1, 20), OutputRow(of_many, 1, 20));
  for (int64_t i = 1; i < spec.query_length; i += 2) {
    EXPECT_EQ(OutputRow(of_few, 1, i), OutputRow(of_many, 1, i)) << i;
  }
}

TEST_P(FlatRowsTest, SameBitsForABatchEntryAlone) {
  ProblemSpec spec = Prefill();
  spec.batch = 3;
  spec.valid_lens = LengthsShape::kPerRow;
  OwnedProblem owned = MakeProblem(spec, TestSeed());
  ASSERT_OK_AND_ASSIGN(const Results all, runner_.Run(owned.problem));
  AttentionProblem& problem = owned.problem;
  KeyValueBlock& block = problem.key_value[0];
  problem.query = Slice(problem.query, 0, 0, 1);
  block = {.key = Slice(block.key, 0, 0, 1),
           .value = Slice(block.value, 0, 0, 1)};
  problem.masks.valid_lens = Slice(*problem.masks.valid_lens, 0, 0, 1);
  ASSERT_OK_AND_ASSIGN(const Results alone, runner_.Run(problem));
  EXPECT_EQ(alone.output.ToDoubles(),
            Materialize(Slice(all.output.view(), 0, 0, 1)).ToDoubles());
}

INSTANTIATE_FOR_TARGETS(FlatRowsTest);

using FlatRowsThreadsTest = CpuThreadsTest;

TEST_P(FlatRowsThreadsTest, Prefill) {
  CheckThatBitsAreTheSame(MakeProblem(Prefill(), TestSeed()).problem);
}

TEST_P(FlatRowsThreadsTest, DecodeWithSplitKeys) {
  CheckThatBitsAreTheSame(MakeProblem(Decode(), TestSeed()).problem);
}

INSTANTIATE_FOR_TARGETS(FlatRowsThreadsTest);

}  // namespace
}  // namespace attention::test
