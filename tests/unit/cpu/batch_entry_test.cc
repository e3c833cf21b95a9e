// An entry of a rectangular batch has the bits that it gives alone.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/element.h"
#include "gtest/gtest.h"
#include "tests/support/special_numbers.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {
namespace {

using BatchEntryTest = CpuTest;

// One entry of a batch, as a batch of its own. attend_mask is that of all.
AttentionProblem EntryOf(const AttentionProblem& batch, int64_t b) {
  AttentionProblem entry = batch;
  const KeyValueBlock& block = batch.key_value[0];
  entry.query = Slice(batch.query, 0, b, b + 1);
  entry.key_value[0] = {.key = Slice(block.key, 0, b, b + 1),
                        .value = Slice(block.value, 0, b, b + 1)};
  if (const auto& lens = batch.masks.valid_lens) {
    entry.masks.valid_lens = Slice(*lens, 0, b, b + 1);
  }
  return entry;
}

// Holds entries of a batch to what they give alone.
void CheckEntriesAlone(TargetRunner& runner, const AttentionProblem& batch,
                       absl::Span<const int64_t> entries) {
  ASSERT_OK_AND_ASSIGN(const Results all, runner.Run(batch));
  const std::string kernel = runner.kernel();
  for (const int64_t b : entries) {
    ASSERT_OK_AND_ASSIGN(const Results alone, runner.Run(EntryOf(batch, b)));
    EXPECT_EQ(runner.kernel(), kernel);
    EXPECT_EQ(alone.output.ToDoubles(),
              Materialize(Slice(all.output.view(), 0, b, b + 1)).ToDoubles())
        << "entry " << b;
  }
}

TEST_P(BatchEntryTest, Prefill) {
  ProblemSpec spec = {.batch = 3,
                      .query_heads = 2,
                      .kv_heads = 1,
                      .query_length = 103,
                      .key_length = 270,
                      .width = 36,
                      .value_width = 33,
                      .valid_lens = LengthsShape::kPerRow};
  for (const double scale : {0.2, 1e-6}) {
    spec.scale = scale;
    CheckEntriesAlone(runner_, MakeProblem(spec, TestSeed()).problem, {0, 2});
  }
}

// Of two tiles of keys. Alone it has two blocks of rows, in the batch one.
ProblemSpec LongerBlocks() {
  return {.batch = 32,
          .query_heads = 1,
          .kv_heads = 1,
          .query_length = 264,
          .key_length = 530,
          .width = 12,
          .value_width = 5,
          .wanted = {.weights = false, .lse = true}};
}

// A row without keys changes how the rows of its micro-tile are computed.
TEST_P(BatchEntryTest, WhoseBlocksTheBatchMakesLonger) {
  for (const DataType type :
       {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    for (const ScoringKind scoring : kAllScorings) {
      if (type != DataType::kFloat32 && scoring != ScoringKind::kDotProduct) {
        continue;  // no kernels of their own
      }
      SCOPED_TRACE(absl::StrCat(NameOf(scoring), " ", Name(type)));
      ProblemSpec spec = LongerBlocks();
      spec.type = type;
      spec.scoring = scoring;
      spec.sigma = 4;
      OwnedProblem owned = MakeProblem(spec, TestSeed());
      owned.problem.masks.valid_lens =
          owned.Add(DataType::kInt32, {spec.batch, spec.query_length},
                    Layout::kRowMajor, [&spec](absl::Span<const int64_t> at) {
                      return at[1] == 150 ? 0 : spec.key_length;
                    });
      CheckEntriesAlone(runner_, owned.problem, {0, 31});
    }
  }
}

// The centre is that of the keys of all its rows.
TEST_P(BatchEntryTest, GaussianWithAWindowToTheRight) {
  ProblemSpec spec = LongerBlocks();
  spec.key_length = 300;
  spec.scoring = ScoringKind::kGaussian;
  spec.sigma = 4;
  spec.window.right = 3;
  CheckEntriesAlone(runner_, MakeProblem(spec, TestSeed()).problem, {0, 31});
}

// Rows 7, 137 and 138 attend keys of both tiles, all far from the centre and
// near them. Rows 9 and 134, which have no keys, share micro-tiles with them.
TEST_P(BatchEntryTest, WithLostRows) {
  ProblemSpec spec = LongerBlocks();
  spec.scoring = ScoringKind::kGaussian;
  spec.sigma = 4;
  OwnedProblem owned = MakeProblem(spec, TestSeed());
  const auto is_lost = [](int64_t row) {
    return row == 7 || row == 137 || row == 138;
  };
  const auto is_far = [](int64_t key) { return key < 10 || key >= 520; };
  const auto move = [&spec](const TensorView& rows, const auto& which) {
    for (int64_t b = 0; b < spec.batch; ++b) {
      for (int64_t row = 0; row < rows.shape[2]; ++row) {
        for (int64_t i = 0; which(row) && i < spec.width; ++i) {
          const int64_t at[] = {b, 0, row, i};
          const std::byte* const element = ElementAddress(rows, at);
          SetElement(rows, at, LoadElement(rows.type, element) + 100);
        }
      }
    }
  };
  move(owned.problem.query, is_lost);
  move(owned.problem.key_value[0].key, is_far);
  owned.problem.masks.attend_mask =
      owned.Add(DataType::kBool, {spec.query_length, spec.key_length},
                Layout::kRowMajor, [&](absl::Span<const int64_t> at) {
                  if (at[0] == 9 || at[0] == 134) return 0;
                  return is_lost(at[0]) == is_far(at[1]) ? 1 : 0;
                });
  CheckEntriesAlone(runner_, owned.problem, {0, 31});
  EXPECT_EQ(runner_.kernel(), "fp32_tiles_and_differences");
}

// How its keys are split follows from what it attends itself, not from what
// else is in the batch.
TEST_P(BatchEntryTest, Decode) {
  const ProblemSpec spec = {.batch = 3,
                            .query_heads = 6,
                            .kv_heads = 2,
                            .query_length = 1,
                            .key_length = 5000,
                            .width = 64,
                            .value_width = 64,
                            .wanted = {.weights = false, .lse = true}};
  OwnedProblem owned = MakeProblem(spec, TestSeed());
  owned.problem.masks.valid_lens = owned.Add(
      DataType::kInt32, {3}, Layout::kRowMajor,
      [](absl::Span<const int64_t> at) { return 4600 - 2200 * at[0]; });
  CheckEntriesAlone(runner_, owned.problem, {0, 1, 2});
}

ProblemSpec SmallEntries() {
  return {.batch = 64,
          .query_heads = 1,
          .kv_heads = 1,
          .query_length = 1,
          .key_length = 16,
          .width = 64,
          .value_width = 64,
          .wanted = {.weights = false, .lse = false}};
}

// However many entries there are, each is small.
TEST_P(BatchEntryTest, Small) {
  for (const int64_t queries : {1, 7}) {
    ProblemSpec spec = SmallEntries();
    spec.query_length = queries;
    CheckEntriesAlone(runner_, MakeProblem(spec, TestSeed()).problem, {0, 63});
    EXPECT_EQ(runner_.kernel(), "fp32_small");
  }
}

// Which other kernels then compute.
TEST_P(BatchEntryTest, SmallBesideOneThatIsNotFinite) {
  for (const int64_t batch : {3, 64}) {
    ProblemSpec spec = SmallEntries();
    spec.batch = batch;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    ASSERT_OK_AND_ASSIGN(const Results before, runner_.Run(owned.problem));
    SetElement(owned.problem.key_value[0].value, {1, 0, 2, 3}, kInfinity);
    ASSERT_OK_AND_ASSIGN(const Results after, runner_.Run(owned.problem));
    for (int64_t b = 0; b < batch; ++b) {
      const auto entry = [b](const Results& results) {
        return Materialize(Slice(results.output.view(), 0, b, b + 1))
            .ToDoubles();
      };
      if (b == 1) continue;
      EXPECT_EQ(entry(before), entry(after)) << "entry " << b;
    }
    EXPECT_TRUE(Matches(owned.problem, after));
    ASSERT_OK_AND_ASSIGN(const Results alone,
                         runner_.Run(EntryOf(owned.problem, 1)));
    EXPECT_EQ(alone.output.ToDoubles(),
              Materialize(Slice(after.output.view(), 0, 1, 2)).ToDoubles());
  }
}

INSTANTIATE_FOR_TARGETS(BatchEntryTest);

}  // namespace
}  // namespace attention::test
