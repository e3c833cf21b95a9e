// Entries that bring their keys apart, as sequences do, give the bits that they
// give in one tensor, or alone.

#include "tests/support/own_keys.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"
#include "tests/support/packed_problem.h"
#include "tests/support/random.h"

namespace attention::test {
namespace {

using ::testing::HasSubstr;

class OwnKeysTest : public BackendTest {
 protected:
  void ExpectBitsOfOneTensor(const ProblemSpec& spec) {
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    ASSERT_OK_AND_ASSIGN(const Results expected, Run(owned.problem));
    ASSERT_OK_AND_ASSIGN(const Results apart, Run(WithOwnKeys(owned.problem)));
    EXPECT_EQ(apart.output.shape(), expected.output.shape());
    EXPECT_TRUE(SameBits(apart, expected));
  }
};

ProblemSpec Entries() {
  return {.batch = 3,
          .query_heads = 4,
          .kv_heads = 2,
          .query_length = 7,
          .key_length = 600,
          .width = 16,
          .value_width = 8};
}

TEST_P(OwnKeysTest, AsInOneTensor) {
  for (const int rank : {2, 3, 4}) {
    SCOPED_TRACE(rank);
    ProblemSpec spec = Entries();
    spec.rank = rank;
    if (rank < 4) spec.query_heads = spec.kv_heads = 1;
    if (rank < 3) spec.batch = 1;
    ExpectBitsOfOneTensor(spec);
    spec.wanted = {.weights = true};
    spec.attend_mask = MaskExtents::kAll;
    spec.bias = MaskExtents::kFewerDimensions;
    spec.valid_lens = LengthsShape::kPerRow;
    ExpectBitsOfOneTensor(spec);
  }
}

TEST_P(OwnKeysTest, MoreResults) {
  if (IsDevice(GetParam())) return;  // gives none of them
  ProblemSpec spec = Entries();
  spec.wanted = {
      .top_k = 5, .key_weights = true, .scores = ScoreStage::kMasked};
  ExpectBitsOfOneTensor(spec);
}

TEST_P(OwnKeysTest, EveryOptionOfEntries) {
  ProblemSpec spec = Entries();
  spec.valid_lens = LengthsShape::kPerBatch;
  spec.query_offsets_type = DataType::kInt64;
  spec.causal = Causal::kTopLeft;
  spec.alibi_slopes = PerHeadShape::kPerBatchAndHead;
  spec.sinks = PerHeadShape::kPerBatchAndHead;
  spec.bias = MaskExtents::kAll;
  spec.dropout = {.training = true, .p = 0.5, .seed = 7};
  ExpectBitsOfOneTensor(spec);
}

TEST_P(OwnKeysTest, InPages) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    ProblemSpec spec = Entries();
    spec.type = type;
    spec.keys_per_block = 64;
    ExpectBitsOfOneTensor(spec);
  }
}

// A rectangle of queries over keys of different lengths: every entry alone.
TEST_P(OwnKeysTest, OfDifferentLengths) {
  ProblemSpec spec = Entries();
  spec.causal = Causal::kBottomRight;
  const bool sums = !IsDevice(GetParam());
  spec.wanted = {.weights = true, .lse = true, .key_weights = sums};
  const std::vector<EntryLengths> lengths = {{7, 60}, {7, 2100}, {7, 0}};
  const PackedProblem all = MakePackedProblem(spec, lengths, TestSeed());
  AttentionProblem problem = all.packed.problem;
  problem.query_starts.reset();
  problem.key_starts.reset();
  problem.key_value.clear();
  // Tokens first, read as (B, Hq, Lq, Dq).
  const auto tokens = problem.query.strides;
  problem.query.shape = {3, 4, 7, 16};
  problem.query.strides = {7 * tokens[0], tokens[1], tokens[0], tokens[2]};
  for (const OwnedProblem& entry : all.entries) {
    problem.key_value_of_entries.push_back(entry.problem.key_value);
  }
  ASSERT_OK_AND_ASSIGN(const Results results, Run(problem));
  EXPECT_EQ(results.output.shape(), (Shape{3, 4, 7, 8}));
  EXPECT_EQ(results.weights->shape(), (Shape{int64_t{4} * 7 * 2160}));
  if (sums) {
    EXPECT_EQ(results.key_weights->shape(), (Shape{4, 2160}));
  }
  std::vector<double> output;
  std::vector<double> lse;
  std::vector<double> weights;
  for (const OwnedProblem& entry : all.entries) {
    ASSERT_OK_AND_ASSIGN(const Results alone, Run(entry.problem));
    for (const auto& [to, of] :
         {std::pair(&output, &alone.output), std::pair(&lse, &*alone.lse),
          std::pair(&weights, &*alone.weights)}) {
      const std::vector<double> part = of->ToDoubles();
      to->insert(to->end(), part.begin(), part.end());
    }
  }
  EXPECT_EQ(results.output.ToDoubles(), output);
  EXPECT_EQ(results.lse->ToDoubles(), lse);
  EXPECT_EQ(results.weights->ToDoubles(), weights);
}

TEST_P(OwnKeysTest, UnderPackedQueries) {
  ProblemSpec spec = Entries();
  spec.causal = Causal::kBottomRight;
  if (!IsDevice(GetParam())) spec.wanted.top_k = 3;
  const std::vector<EntryLengths> lengths = {
      {3, 6}, {1, 2100}, {0, 7}, {40, 9}};
  const PackedProblem all = MakePackedProblem(spec, lengths, TestSeed());
  ASSERT_OK_AND_ASSIGN(const Results packed, Run(all.packed.problem));
  for (const int64_t page : {0, 1, 16, 100}) {
    SCOPED_TRACE(absl::StrCat("pages of ", page));
    ASSERT_OK_AND_ASSIGN(const Results apart,
                         Run(WithOwnKeys(all.packed.problem, page)));
    EXPECT_TRUE(SameBits(apart, packed));
  }
}

INSTANTIATE_FOR_BACKENDS(OwnKeysTest);

class WrongOwnKeysTest : public ::testing::Test {
 protected:
  void Expect(const std::string& error) const {
    EXPECT_THAT(ValidateBatch(problem_).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(error)));
  }

  const OwnedProblem owned_ = MakeProblem(Entries(), 1);
  AttentionProblem problem_ = WithOwnKeys(owned_.problem);
};

TEST_F(WrongOwnKeysTest, NumberOfEntries) {
  problem_.key_value_of_entries.pop_back();
  Expect("key: of 2 entries, query has 3");
}

TEST_F(WrongOwnKeysTest, WidthOfOneEntry) {
  problem_.key_value_of_entries[1][0].key.shape[3] = 5;
  Expect("(in entry 1 of the batch)");
}

TEST_F(WrongOwnKeysTest, ValueWidthThatDiffers) {
  problem_.key_value_of_entries[2][0].value.shape[3] = 5;
  Expect("value: width 5 in entry 2, entry 0 has 8");
}

TEST_F(WrongOwnKeysTest, MaskOfAnotherBatch) {
  ProblemSpec spec = Entries();
  spec.batch = 2;
  spec.attend_mask = MaskExtents::kAll;
  const OwnedProblem other = MakeProblem(spec, 1);
  problem_.masks.attend_mask = other.problem.masks.attend_mask;
  Expect("attend_mask: shape [2, 4, 7, 600] does not broadcast");
}

TEST_F(WrongOwnKeysTest, LengthsOfAnotherBatch) {
  ProblemSpec spec = Entries();
  spec.batch = 2;
  spec.valid_lens = LengthsShape::kPerRow;
  const OwnedProblem other = MakeProblem(spec, 1);
  problem_.masks.valid_lens = other.problem.masks.valid_lens;
  Expect("valid_lens: shape [2, 7] (expected [3, ...], the batch of query)");
}

}  // namespace
}  // namespace attention::test
