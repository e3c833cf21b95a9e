#include "server/request/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

using ::attention::test::IsOk;
using ::attention::test::StatusIs;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

// 64 queries and keys of width 1, values of `value_width`: weights of 16 KiB,
// an lse of 256 bytes.
ValidatedBatch Problem(int64_t value_width = 1, int64_t keys = 64) {
  static constexpr float kZeros[64 * 64] = {};
  AttentionProblem problem;
  const auto view = [](int64_t rows, int64_t columns) {
    return ContiguousView(DataType::kFloat32, {rows, columns}, kZeros);
  };
  problem.query = view(64, 1);
  problem.key_value.push_back({view(keys, 1), view(keys, value_width)});
  return ValidateBatch(problem).value();
}

const std::vector<WantedResult> kAll = {
    {ResultField::kOutput}, {ResultField::kWeights}, {ResultField::kLse}};

TEST(Results, CountWhatTheReplyHolds) {
  EXPECT_EQ(Results(kAll, Problem()).Bytes(), 16384 + 256 + 256);
  EXPECT_EQ(Results({{ResultField::kOutput}}, Problem()).Bytes(), 256);
}

TEST(Results, CountAnOutputThatNobodyWants) {
  const Results results({{ResultField::kLse}}, Problem());
  EXPECT_EQ(results.Bytes(), 512);
  ASSERT_EQ(results.sent().size(), 1U);
  EXPECT_EQ(results.sent()[0].wanted.result, ResultField::kLse);
}

TEST(Results, OfTheReplyAreThoseThatAreSent) {
  const Results results({{ResultField::kLse}}, Problem(/*value_width=*/8));
  EXPECT_EQ(results.Bytes(), 256 + 2048);
  EXPECT_EQ(results.SentBytes(), 256);
  EXPECT_THAT(results.CheckFit(0, 256), IsOk());
  EXPECT_THAT(results.CheckFit(0, 255),
              StatusIs(kExhausted, StartsWith("lse: ")));
}

// They are computed together.
TEST(Results, CountTheOtherOneOfTopK) {
  static constexpr float kZeros[64] = {};
  AttentionProblem problem;
  const TensorView rows = ContiguousView(DataType::kFloat32, {64, 1}, kZeros);
  problem.query = rows;
  problem.key_value.push_back({rows, rows});
  problem.wanted.top_k = 2;
  const ValidatedBatch batch = ValidateBatch(problem).value();
  Results results({{ResultField::kOutput}, {ResultField::kTopKWeights}}, batch);
  EXPECT_EQ(results.Bytes(), 256 + 64 * 2 * (8 + 4));
  EXPECT_EQ(results.sent().size(), 2U);
  ASSERT_THAT(results.Allocate(), IsOk());
  EXPECT_NE(results.Outputs().top_k_indices.data, nullptr);
}

TEST(Results, NameTheOneThatDoesNotFit) {
  const Results results(kAll, Problem());
  EXPECT_THAT(results.CheckFit(0, 16896), IsOk());
  EXPECT_THAT(results.CheckFit(1, 16896),
              StatusIs(kExhausted,
                       StartsWith("weights: shape [64, 64] takes 16384 bytes, "
                                  "the reply 16897 (at most 16896")));
}

TEST(Results, SaturateWhereNoMemoryHoldsThem) {
  // Legal on paper: no key, so no value of that width either.
  const Results results(kAll, Problem(int64_t{1} << 54, /*keys=*/0));
  EXPECT_EQ(results.Bytes(), (int64_t{1} << 62) + 256);
  const int64_t more = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(results.CheckFit(more, more - 1),
              StatusIs(kExhausted, HasSubstr("max_response_bytes")));
}

TEST(Results, OfNoElementsTakeNothing) {
  EXPECT_EQ(Results({{ResultField::kOutput}}, Problem(0)).Bytes(), 0);
}

TEST(Results, AreComputedInMemoryAlignedTo64Bytes) {
  Results results(kAll, Problem());
  ASSERT_THAT(results.Allocate(), IsOk());
  const AttentionOutputs outputs = results.Outputs();
  for (const MutableTensorView* view :
       {&outputs.output, &outputs.weights, &outputs.lse}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view->data) % 64, 0U);
  }
}

}  // namespace
}  // namespace attention::server
