// What small random problems do not reach: many tiles, many blocks, splits.

#include "core/cpu/kernels/arguments.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {
namespace {

using CpuBackendTest = CpuTest;

// Three tiles of keys, the last of them not full.
ProblemSpec Prefill() {
  return {.batch = 1,
          .query_heads = 2,
          .kv_heads = 1,
          .query_length = 103,
          .key_length = 2 * cpu::kMaxTileKeys + 45,
          .width = 36,
          .value_width = 32};
}

ProblemSpec Decode() {
  return {.batch = 1,
          .query_heads = 6,
          .kv_heads = 2,
          .query_length = 1,
          .key_length = 2500,
          .width = 64,
          .value_width = 64,
          .wanted = {.weights = false, .lse = true}};
}

TEST_P(CpuBackendTest, PrefillOfManyTiles) {
  for (const bool weights : {false, true}) {
    ProblemSpec spec = Prefill();
    spec.wanted.weights = weights;
    Check(spec);
  }
}

TEST_P(CpuBackendTest, PrefillOfEveryType) {
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    ProblemSpec spec = Prefill();
    spec.type = type;
    Check(spec);
  }
}

TEST_P(CpuBackendTest, PrefillOfEveryScoring) {
  for (const ScoringKind scoring :
       {ScoringKind::kAdditive, ScoringKind::kGaussian,
        ScoringKind::kBilinear}) {
    ProblemSpec spec = Prefill();
    spec.scoring = scoring;
    spec.sigma = 8;
    Check(spec);
    spec.softcap = 3;
    Check(spec);
  }
}

TEST_P(CpuBackendTest, PrefillUnderEveryMask) {
  ProblemSpec spec = Prefill();
  spec.valid_lens = LengthsShape::kPerRow;
  Check(spec);
  spec.valid_lens = LengthsShape::kPerBatch;
  spec.causal = Causal::kBottomRight;
  Check(spec);
  spec.window.left = 50;
  Check(spec);
  spec.attend_mask = MaskExtents::kAll;
  spec.bias = MaskExtents::kAll;
  Check(spec);
}

// Rows of a block whose windows begin and end in different tiles.
TEST_P(CpuBackendTest, WeightsOfWindowsAcrossTiles) {
  ProblemSpec spec = Prefill();
  spec.query_length = spec.key_length;
  spec.query_heads = 1;
  spec.causal = Causal::kBottomRight;
  for (const int64_t left : {7, 200, 600}) {
    spec.window.left = left;
    Check(spec);
  }
}

// What waits for the last tile is relative to maxima of its time.
TEST_P(CpuBackendTest, WeightsWhoseMaximaRiseFromTileToTile) {
  for (const double slope : {0.05, -0.05}) {
    OwnedProblem owned = MakeProblem(Prefill(), TestSeed());
    owned.problem.masks.bias =
        owned.Add(DataType::kFloat32, {1, 1, 1, Prefill().key_length},
                  Layout::kRowMajor, [slope](absl::Span<const int64_t> index) {
                    return slope * static_cast<double>(index[3]);
                  });
    Check(owned.problem);
  }
}

// Where a key weighs thousands of times what the tile before had, values do not
// overflow which do not with weights of at most 1 (docs/numerics.md).
TEST_P(CpuBackendTest, LargeValuesUnderAMaximumThatRises) {
  for (ProblemSpec spec : {Prefill(), Decode()}) {
    spec.key_length = 1024;
    OwnedProblem owned = MakeProblem(spec, TestSeed());
    const auto fill = [&owned](TensorView& view, const auto& value_at) {
      view = owned.Add(DataType::kFloat32, view.shape, Layout::kRowMajor,
                       value_at);
    };
    fill(owned.problem.query, [](auto) { return 0.0; });
    fill(owned.problem.key_value.front().value, [](auto) { return 5e34; });
    owned.problem.masks.bias =
        owned.Add(DataType::kFloat32, {1, 1, 1, spec.key_length},
                  Layout::kRowMajor, [](absl::Span<const int64_t> index) {
                    return index[3] == 600 ? 9.6 : 0.0;
                  });
    Check(owned.problem);
  }
}

TEST_P(CpuBackendTest, SinksOverManyTiles) {
  ProblemSpec spec = Prefill();
  spec.sinks = PerHeadShape::kPerHead;
  Check(spec);
}

TEST_P(CpuBackendTest, DropoutOverManyTiles) {
  ProblemSpec spec = Prefill();
  spec.dropout = {.training = true, .p = 0.3, .seed = 7};
  spec.wanted.weights_after_dropout = true;
  Check(spec);
}

TEST_P(CpuBackendTest, WeightsAfterADropoutThatIsNotThere) {
  ProblemSpec spec = Prefill();
  spec.wanted.weights_after_dropout = true;
  Check(spec);
  spec.wanted.top_k = 3;  // by a second sweep
  Check(spec);
  spec.dropout = {.training = false, .p = 0.3, .seed = 7};
  Check(spec);
}

TEST_P(CpuBackendTest, DecodeWithSplitKeys) {
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    ProblemSpec spec = Decode();
    spec.type = type;
    Check(spec);
  }
}

TEST_P(CpuBackendTest, DecodeUnderMasksAndOddWidths) {
  ProblemSpec spec = Decode();
  spec.width = 33;
  spec.value_width = 65;
  spec.query_length = 3;
  spec.valid_lens = LengthsShape::kPerRow;
  spec.bias = MaskExtents::kAll;
  Check(spec);
  spec.keys_per_block = 700;
  spec.causal = Causal::kBottomRight;
  Check(spec);
}

TEST_P(CpuBackendTest, AdditiveWithLargeProjections) {
  ProblemSpec spec = {.query_length = 40,
                      .key_length = 200,
                      .width = 16,
                      .spread = 20,
                      .scoring = ScoringKind::kAdditive};
  Check(spec);
}

TEST_P(CpuBackendTest, OptionsNearTheEndsOfTheRangeOfFp32) {
  for (const double softcap : {1e-30, 3e38}) {
    Check({.scale = 1e4, .softcap = softcap});
  }
  for (const double scale : {1e-40, -1e-25, 0.0, 1e-6, 1e30}) {
    Check({.scale = scale});
    Check({.scoring = ScoringKind::kBilinear, .scale = scale});
  }
}

INSTANTIATE_FOR_TARGETS(CpuBackendTest);

}  // namespace
}  // namespace attention::test
