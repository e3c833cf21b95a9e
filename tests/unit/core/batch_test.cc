// Packed batches: what is refused, and what shapes the results have.

#include "core/batch.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/core/problem_builder.h"

namespace attention {
namespace {

using test::StatusIs;
using ::testing::Eq;
using ::testing::HasSubstr;
using testing::ProblemBuilder;
using ::testing::StartsWith;

// Two entries, of 2 and 3 queries and 4 and 1 keys; 4 heads on 2.
class BatchTest : public ::testing::Test {
 protected:
  BatchTest() : builder_({5, 4, 8}, {5, 2, 8}, {5, 2, 6}) {
    problem().query_starts = builder_.Ints({3}, {0, 2, 5});
    problem().key_starts = builder_.Ints({3}, {0, 4, 5});
  }

  AttentionProblem& problem() { return builder_.problem; }
  void Expect(const std::string& message) {
    EXPECT_THAT(
        ValidateBatch(problem()).status(),
        StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(message)));
  }

  void ExpectAll(const std::string& message) {
    EXPECT_THAT(ValidateBatch(problem()).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, Eq(message)));
  }

  ProblemBuilder builder_;
};

TEST_F(BatchTest, HasAProblemForEachEntry) {
  problem().wanted = {.weights = true, .lse = true};
  const auto batch = ValidateBatch(problem());
  ASSERT_TRUE(batch.ok()) << batch.status();
  ASSERT_EQ(batch->problems.size(), 2);
  EXPECT_EQ(batch->problems[0].query_length, 2);
  EXPECT_EQ(batch->problems[0].key_length, 4);
  EXPECT_EQ(batch->problems[1].query_length, 3);
  EXPECT_EQ(batch->problems[1].key_length, 1);
  EXPECT_EQ(batch->output_shape, (Shape{5, 4, 6}));
  EXPECT_EQ(batch->weights_shape, (Shape{4L * (2 * 4 + 3 * 1)}));
  EXPECT_EQ(batch->lse_shape, (Shape{4, 5}));
  EXPECT_EQ(batch->ResultBytes(), 4L * (5 * 4 * 6 + 4 * 11 + 4 * 5));
}

TEST_F(BatchTest, MoreResultsArePackedLikeTheOthers) {
  problem().wanted = {
      .top_k = 3, .key_weights = true, .scores = ScoreStage::kMasked};
  const auto batch = ValidateBatch(problem());
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->top_k_shape, (Shape{5, 4, 3}));
  EXPECT_EQ(batch->key_weights_shape, (Shape{4, 5}));
  EXPECT_EQ(batch->ResultBytes(),
            4L * (5 * 4 * 6 + 4 * 11 + 4 * 5) + 12L * 5 * 4 * 3);
  // Of an entry of one key, too: its rows are not full.
  EXPECT_EQ(batch->problems[1].wanted.top_k, 3);
}

TEST_F(BatchTest, TopKIsFrom1ToTheKeysOfTheLongestEntry) {
  problem().wanted.top_k = 4;
  EXPECT_TRUE(ValidateBatch(problem()).ok());
  problem().wanted.top_k = 5;
  Expect("top_k: 5 (expected 1 to 4, the keys of the longest entry)");
  problem().wanted.top_k = 0;
  Expect("top_k: 0 (expected 1 to 4, the keys of the longest entry)");
}

// For each entry anew it would take minutes. All heads have one number.
TEST_F(BatchTest, LooksAtSharedSinksOnce) {
  constexpr int64_t kHeads = int64_t{1} << 24;
  problem().query = builder_.Zeros(DataType::kFloat32, {0, kHeads, 1});
  problem().key_value = {{problem().query, problem().query}};
  problem().query_starts = builder_.Ints({4097}, std::vector<int32_t>(4097, 0));
  problem().key_starts = problem().query_starts;
  problem().sinks = builder_.Floats({1}, {0});
  problem().sinks->shape = {kHeads};
  problem().sinks->strides = {0};
  EXPECT_TRUE(ValidateBatch(problem()).ok());
}

TEST_F(BatchTest, StartsMayBeOf64Bits) {
  problem().query_starts = builder_.Longs({3}, {0, 2, 5});
  EXPECT_TRUE(ValidateBatch(problem()).ok());
}

TEST_F(BatchTest, BothStartsAreNeeded) {
  problem().key_starts.reset();
  Expect("key_starts: missing beside query_starts");
  problem().key_starts = problem().query_starts;
  problem().query_starts.reset();
  Expect("query_starts: missing beside key_starts");
}

TEST_F(BatchTest, StartsBeginAt0) {
  problem().query_starts = builder_.Ints({3}, {1, 2, 5});
  Expect("query_starts: element [0] is 1 (expected 0");
}

TEST_F(BatchTest, StartsNeverFall) {
  problem().key_starts = builder_.Ints({3}, {0, 6, 5});
  Expect("key_starts: element [2] is 5 (expected 6 or more, where entry 1");
  problem().key_starts = builder_.Ints({3}, {0, -4, 5});
  Expect("key_starts: element [1] is -4 (expected 0 or more, where entry 0");
}

TEST_F(BatchTest, StartsEndAtTheLength) {
  problem().query_starts = builder_.Ints({3}, {0, 2, 4});
  Expect(
      "query_starts: the last element is 4 (expected 5, the length of query)");
}

TEST_F(BatchTest, StartsAreAsMany) {
  problem().key_starts = builder_.Ints({2}, {0, 5});
  Expect("key_starts: shape [2], query_starts has [3]");
}

TEST_F(BatchTest, StartsHaveOneExtent) {
  problem().query_starts = builder_.Ints({1, 3}, {0, 2, 5});
  Expect("query_starts: shape [1, 3] (expected one extent");
  problem().query_starts = builder_.Ints({0}, {});
  Expect("query_starts: shape [0] (expected one extent");
}

TEST_F(BatchTest, StartsAreIntegers) {
  problem().query_starts = builder_.Floats({3}, {0, 2, 5});
  Expect("query_starts: datatype FP32 (expected INT32 or INT64)");
}

TEST_F(BatchTest, TensorsHaveThreeDimensions) {
  problem().query = builder_.Zeros(DataType::kFloat32, {5, 8});
  Expect("query: shape [5, 8] has 2 dimensions (expected 3 in a packed batch");
}

TEST_F(BatchTest, KeysAreAsManyAsValues) {
  problem().key_value[0].value = builder_.Zeros(DataType::kFloat32, {6, 2, 6});
  Expect("value: shape [6, 2, 6] has length 6, key has 5");
}

TEST_F(BatchTest, MasksAreRefused) {
  problem().masks.attend_mask = builder_.Bytes({1, 1}, {1});
  Expect("attend_mask: is not for packed batches");
  problem().masks.attend_mask.reset();
  problem().masks.bias = builder_.Floats({1, 1}, {1});
  Expect("bias: is not for packed batches");
}

TEST_F(BatchTest, LengthsAreOfEntries) {
  problem().masks.valid_lens = builder_.Ints({3}, {1, 1, 1});
  Expect("valid_lens: shape [3] (expected [2], the entries of query_starts)");
  problem().masks.valid_lens = builder_.Ints({2}, {4, 2});
  EXPECT_THAT(ValidateBatch(problem()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("(in entry 1 of the packed batch)")));
}

TEST_F(BatchTest, ErrorsHaveTheIndicesOfTheBatch) {
  const std::string of_entry = " (in entry 1 of the packed batch)";
  problem().masks.valid_lens = builder_.Ints({2}, {4, 2});
  ExpectAll(
      "valid_lens: element [1] is 2 (expected 0 to 1, the number of keys)" +
      of_entry);
  problem().masks.valid_lens.reset();
  problem().masks.query_offsets =
      builder_.Longs({2}, {0, (int64_t{1} << 62) + 1});
  ExpectAll(
      "query_offsets: element [1] is 4611686018427387905 (expected -2^62 to "
      "2^62)" +
      of_entry);
  problem().masks.query_offsets.reset();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  problem().sinks = builder_.Floats({2, 4}, {0, 0, 0, 0, 0, 0, kInfinity, 0});
  ExpectAll(
      "sinks: element [1, 2] is inf (expected a finite number, or -inf for no "
      "sink)" +
      of_entry);
}

TEST_F(BatchTest, ErrorsOfOwnKeysHaveTheIndicesOfTheBatch) {
  ProblemBuilder builder({2, 3, 8}, {1, 1, 5, 8}, {1, 1, 5, 6});
  builder.problem.key_value_of_entries.assign(2, builder.problem.key_value);
  builder.problem.key_value.clear();
  builder.problem.masks.valid_lens = builder.Ints({2, 3}, {5, 5, 5, 5, 5, 6});
  EXPECT_EQ(ValidateBatch(builder.problem).status().message(),
            "valid_lens: element [1, 2] is 6 (expected 0 to 5, the number of "
            "keys) (in entry 1 of the batch)");
}

TEST_F(BatchTest, ErrorsHaveTheShapesOfTheBatch) {
  const auto zeros = [this](Shape shape) {
    return builder_.Zeros(DataType::kFloat32, std::move(shape));
  };
  auto& [key, value, key_scale, value_scale, checked, page] =
      problem().key_value[0];
  key = zeros({5, 2, 7});
  ExpectAll(
      "key: shape [5, 2, 7] has width 7, query has 8 (scaled dot product needs "
      "equal widths)");
  key = zeros({5, 3, 8});
  ExpectAll(
      "key: shape [5, 3, 8] has 3 heads, query has 4 (the query's heads are a "
      "multiple of the key's)");
  key = zeros({5, 2, 8});
  value = zeros({5, 1, 6});
  ExpectAll("value: shape [5, 1, 6] has heads 1, key has 2");
  key = zeros({5, 0, 8});
  ExpectAll("key: shape [5, 0, 8] has 0 heads (expected 1 or more)");
  key = zeros({5, 2, 0});
  ExpectAll("key: shape [5, 2, 0] has width 0 (expected 1 or more)");
  problem().query = zeros({5, 4, 0});
  ExpectAll("query: shape [5, 4, 0] has width 0 (expected 1 or more)");
  problem().query = zeros({5, 0, 8});
  ExpectAll("query: shape [5, 0, 8] has 0 heads (expected 1 or more)");
}

// Two entries of three rows, with five keys of their own.
class OwnKeysOfBatchTest : public BatchTest {
 protected:
  OwnKeysOfBatchTest() {
    builder_ = ProblemBuilder({2, 3, 8}, {1, 1, 5, 8}, {1, 1, 5, 6});
    problem().key_value_of_entries.assign(2, problem().key_value);
    problem().key_value.clear();
  }
};

TEST_F(OwnKeysOfBatchTest, ErrorsHaveTheShapesOfTheBatch) {
  Masks& masks = problem().masks;
  masks.attend_mask = builder_.Zeros(DataType::kBool, {2, 3, 4});
  ExpectAll(
      "attend_mask: shape [2, 3, 4] does not broadcast to [2, 3, 5] (in entry "
      "0 of the batch)");
  masks.attend_mask.reset();
  masks.bias = builder_.Zeros(DataType::kFloat32, {4, 5});
  ExpectAll(
      "bias: shape [4, 5] does not broadcast to [2, 3, 5] (in entry 0 of the "
      "batch)");
  masks.bias.reset();
  masks.valid_lens = builder_.Ints({2, 2}, {5, 5, 5, 5});
  ExpectAll("valid_lens: shape [2, 2] (expected [2] or [2, 3])");
  masks.valid_lens.reset();
  problem().sinks = builder_.Zeros(DataType::kFloat32, {5});
  ExpectAll("sinks: shape [5] (expected [1] or [2, 1])");
  problem().query = builder_.Zeros(DataType::kFloat32, {2, 3, 0});
  ExpectAll("query: shape [2, 3, 0] has width 0 (expected 1 or more)");
}

TEST_F(OwnKeysOfBatchTest, MasksAreCheckedOnceForAllEntries) {
  problem().masks.attend_mask =
      builder_.Bytes({2, 1, 5}, {1, 1, 1, 1, 1, 1, 1, 2, 1, 1});
  ExpectAll(
      "attend_mask: element [1, 0, 2] is 2 (expected 1 = takes part, or 0 = "
      "does not)");
  problem().attend_mask_checked = true;
  EXPECT_TRUE(ValidateBatch(problem()).ok());
}

TEST_F(OwnKeysOfBatchTest, MasksOfFewerExtentsAreForEveryEntry) {
  problem().masks.attend_mask = builder_.Bytes({1, 5}, {1, 0, 1, 1, 1});
  problem().masks.bias = builder_.Floats({2, 1, 1}, {3, 4});
  const auto batch = ValidateBatch(problem());
  ASSERT_TRUE(batch.ok()) << batch.status();
  for (size_t n = 0; n < 2; ++n) {
    const ValidatedProblem& entry = batch->problems[n];
    EXPECT_EQ(entry.attend_mask->shape, (Shape{1, 1, 3, 5}));
    EXPECT_EQ(entry.attend_mask->data, problem().masks.attend_mask->data);
    EXPECT_EQ(entry.bias->shape, (Shape{1, 1, 3, 5}));
    EXPECT_EQ(entry.bias->data, problem().masks.bias->data + n * sizeof(float));
  }
}

TEST_F(BatchTest, ViewsOfEntriesAreChecked) {
  problem().masks.valid_lens = builder_.Ints({2}, {4, 1});
  problem().masks.valid_lens->strides.clear();
  Expect("valid_lens: as many strides as extents are expected");
  problem().masks.valid_lens.reset();
  problem().sinks = builder_.Zeros(DataType::kFloat32, {2, 4});
  problem().sinks->strides.clear();
  Expect("sinks: as many strides as extents are expected");
}

TEST_F(BatchTest, SinksAreOfHeadsOrOfEntriesAndHeads) {
  problem().sinks = builder_.Zeros(DataType::kFloat32, {3, 4});
  Expect("sinks: shape [3, 4] (expected [4] or [2, 4])");
  problem().sinks = builder_.Zeros(DataType::kFloat32, {5});
  Expect("sinks: shape [5] (expected [4] or [2, 4])");
}

TEST_F(BatchTest, WidthsAreCheckedWithoutEntries) {
  ProblemBuilder empty({0, 2, 8}, {0, 2, 7}, {0, 2, 6});
  empty.problem.query_starts = empty.Ints({1}, {0});
  empty.problem.key_starts = empty.problem.query_starts;
  EXPECT_THAT(ValidateBatch(empty.problem).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("width")));
}

TEST_F(BatchTest, MoreEntriesThanAreAllowedAreRefused) {
  const std::vector<int32_t> zeros(kMostPackedEntries + 2, 0);
  problem().query_starts =
      builder_.Ints({static_cast<int64_t>(zeros.size())}, zeros);
  EXPECT_THAT(ValidateBatch(problem()).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       StartsWith("query_starts: shape [4098] has 4097 entries "
                                  "(at most 4096")));
}

TEST_F(BatchTest, OneProblemIsABatchOfOne) {
  const ProblemBuilder plain;
  const auto batch = ValidateBatch(plain.problem);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->problems.size(), 1);
  EXPECT_EQ(batch->output_shape, (Shape{2, 4, 3, 6}));
}

}  // namespace
}  // namespace attention
