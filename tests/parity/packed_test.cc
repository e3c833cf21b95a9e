// Entries of a packed batch give the bits that each gives by itself.

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"
#include "tests/support/packed_entries.h"
#include "tests/support/packed_problem.h"
#include "tests/support/random.h"

namespace attention::test {
namespace {

// Empty ones, one query against many keys (split), tiny ones, several tiles.
const std::vector<EntryLengths>& ManyLengths() {
  static const auto* const lengths = new std::vector<EntryLengths>{
      {3, 6}, {1, 2100}, {0, 7}, {40, 600}, {7, 0}, {130, 150}, {5, 70}};
  return *lengths;
}

class PackedTest : public BackendTest {
 protected:
  // All results of every entry, against the entry by itself.
  void ExpectBitsOfEntries(const ProblemSpec& spec,
                           const std::vector<EntryLengths>& lengths) {
    PackedProblem all = MakePackedProblem(spec, lengths, TestSeed());
    AttentionProblem& problem = all.packed.problem;
    const absl::StatusOr<Results> packed = Run(problem);
    if (absl::IsUnimplemented(packed.status())) {
      // A device's kernels refuse these, and the next backend takes them.
      ASSERT_TRUE(IsDevice(GetParam()));
      ASSERT_TRUE(spec.key_type || spec.wanted.top_k) << packed.status();
      return;
    }
    ASSERT_TRUE(packed.ok()) << packed.status();
    for (size_t n = 0; n < lengths.size(); ++n) {
      ASSERT_OK_AND_ASSIGN(const Results alone, Run(all.entries[n].problem));
      EXPECT_TRUE(SameBits(
          ResultsOfEntry(problem, static_cast<int64_t>(n), *packed), alone))
          << "entry " << n;
    }
    EXPECT_TRUE(
        MatchesEntries(problem, ComputeExpectedOfEntries(problem), *packed));
  }
};

ProblemSpec Plain() {
  return {.query_heads = 4,
          .kv_heads = 2,
          .width = 16,
          .value_width = 16,
          .wanted = {.weights = false, .lse = true}};
}

TEST_P(PackedTest, Plain) { ExpectBitsOfEntries(Plain(), ManyLengths()); }

TEST_P(PackedTest, Bf16) {
  ProblemSpec spec = Plain();
  spec.type = DataType::kBFloat16;
  ExpectBitsOfEntries(spec, ManyLengths());
}

TEST_P(PackedTest, Fp16) {
  ProblemSpec spec = Plain();
  spec.type = DataType::kFloat16;
  ExpectBitsOfEntries(spec, ManyLengths());
}

TEST_P(PackedTest, KeysOfAnotherType) {
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16,
                              DataType::kInt8, DataType::kFloat8}) {
    SCOPED_TRACE(Name(type));
    ProblemSpec spec = Plain();
    spec.key_type = type;
    ExpectBitsOfEntries(spec, ManyLengths());
  }
}

TEST_P(PackedTest, Weights) {
  ProblemSpec spec = Plain();
  spec.wanted.weights = true;
  ExpectBitsOfEntries(spec, ManyLengths());
}

// Of an entry with fewer keys than k, rows that are not full.
TEST_P(PackedTest, MoreResults) {
  ProblemSpec spec = Plain();
  spec.wanted = {
      .top_k = 200, .key_weights = true, .scores = ScoreStage::kMasked};
  spec.causal = Causal::kBottomRight;
  ExpectBitsOfEntries(spec, ManyLengths());
}

TEST_P(PackedTest, BottomRightInAWindow) {
  ProblemSpec spec = Plain();
  spec.causal = Causal::kBottomRight;
  spec.window.left = 50;
  ExpectBitsOfEntries(spec, ManyLengths());
}

TEST_P(PackedTest, LengthsAndOffsetsOfEachEntry) {
  ProblemSpec spec = Plain();
  spec.valid_lens = LengthsShape::kPerBatch;
  spec.query_offsets_type = DataType::kInt64;
  spec.causal = Causal::kTopLeft;
  ExpectBitsOfEntries(spec, ManyLengths());
}

TEST_P(PackedTest, SlopesAndSinksOfEachEntry) {
  ProblemSpec spec = Plain();
  spec.alibi_slopes = PerHeadShape::kPerBatchAndHead;
  spec.sinks = PerHeadShape::kPerBatchAndHead;
  ExpectBitsOfEntries(spec, ManyLengths());
}

TEST_P(PackedTest, SlopesAndSinksThatAllEntriesShare) {
  ProblemSpec spec = Plain();
  spec.alibi_slopes = PerHeadShape::kPerHead;
  spec.sinks = PerHeadShape::kPerHead;
  spec.softcap = 3;
  spec.empty_rows = EmptyRows::kUniform;
  ExpectBitsOfEntries(spec, ManyLengths());
}

TEST_P(PackedTest, EveryScoringFunction) {
  for (const ScoringKind kind : {ScoringKind::kAdditive, ScoringKind::kGaussian,
                                 ScoringKind::kBilinear}) {
    SCOPED_TRACE(static_cast<int>(kind));
    ProblemSpec spec = Plain();
    spec.scoring = kind;
    spec.per_head_parameters = true;
    ExpectBitsOfEntries(spec, {{3, 6}, {1, 1500}, {20, 130}, {4, 0}});
  }
}

TEST_P(PackedTest, GaussianFarFromTheOrigin) {
  ProblemSpec spec = Plain();
  spec.scoring = ScoringKind::kGaussian;
  spec.magnitudes = Magnitudes::kFarFromOrigin;
  spec.causal = Causal::kTopLeft;
  ExpectBitsOfEntries(spec, {{30, 60}, {1, 1500}, {60, 130}});
}

// An entry's dropout is that of its place in the batch.
TEST_P(PackedTest, DropoutCountsEntries) {
  ProblemSpec spec = Plain();
  spec.batch = 2;
  spec.query_length = 3;
  spec.key_length = 9;
  spec.dropout = {.training = true, .p = 0.5, .seed = 7};
  const std::vector<EntryLengths> lengths = {{3, 9}, {3, 9}};
  const PackedProblem all = MakePackedProblem(spec, lengths, TestSeed());
  ASSERT_OK_AND_ASSIGN(const Results packed, Run(all.packed.problem));
  // The rectangle of the same numbers.
  OwnedProblem rectangle;
  rectangle.problem = all.entries[0].problem;
  const auto stack = [&](auto view_of) {
    const TensorView first = view_of(all.entries[0].problem);
    Shape shape = first.shape;
    shape[0] = 2;
    return rectangle.Add(
        first.type, shape, Layout::kRowMajor,
        [&](absl::Span<const int64_t> index) {
          Shape at(index.begin(), index.end());
          at[0] = 0;
          return ElementOf(
              view_of(all.entries[static_cast<size_t>(index[0])].problem), at);
        });
  };
  rectangle.problem.query = stack([](const auto& p) { return p.query; });
  rectangle.problem.key_value[0] = {
      .key = stack([](const auto& p) { return p.key_value[0].key; }),
      .value = stack([](const auto& p) { return p.key_value[0].value; })};
  ASSERT_OK_AND_ASSIGN(const Results whole, Run(rectangle.problem));
  ForEachIndex({2, 4, 3, 16}, [&](absl::Span<const int64_t> index) {
    const Shape token = {index[0] * 3 + index[2], index[1], index[3]};
    EXPECT_EQ(ElementOf(whole.output.view(), index),
              ElementOf(packed.output.view(), token));
  });
}

TEST_P(PackedTest, NoEntriesGiveNoRows) {
  OwnedProblem empty;
  const auto zero = [](absl::Span<const int64_t>) { return 0.0; };
  empty.problem.query =
      empty.Add(DataType::kFloat32, {0, 2, 4}, Layout::kRowMajor, zero);
  empty.problem.key_value.push_back(
      {.key = empty.Add(DataType::kFloat32, {0, 1, 4}, Layout::kRowMajor, zero),
       .value =
           empty.Add(DataType::kFloat32, {0, 1, 6}, Layout::kRowMajor, zero)});
  empty.problem.query_starts =
      empty.Add(DataType::kInt32, {1}, Layout::kRowMajor, zero);
  empty.problem.key_starts = empty.problem.query_starts;
  ASSERT_OK_AND_ASSIGN(const Results results, Run(empty.problem));
  EXPECT_EQ(results.output.shape(), (Shape{0, 2, 6}));
}

INSTANTIATE_FOR_BACKENDS(PackedTest);

}  // namespace
}  // namespace attention::test
