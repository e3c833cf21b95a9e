// A sequence computed in pieces gives what it gives as a whole.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"
#include "tests/support/random.h"

namespace attention::test {
namespace {

using SplittingTest = BackendTest;

constexpr int64_t kLength = 70;

ProblemSpec CausalSpec() {
  return {.query_heads = 2,
          .kv_heads = 1,
          .query_length = kLength,
          .key_length = kLength,
          .causal = Causal::kTopLeft,
          .query_offset = 0,
          .window = {.left = 30, .right = {}}};
}

// Rows [begin, end) of each (b, h) of a row-major (B, H, kLength, width).
std::vector<double> RowsOf(const std::vector<double>& all, int64_t width,
                           int64_t begin, int64_t end) {
  std::vector<double> rows;
  const auto size = static_cast<int64_t>(all.size());
  for (int64_t head = 0; head < size; head += kLength * width) {
    rows.insert(rows.end(), all.begin() + head + begin * width,
                all.begin() + head + end * width);
  }
  return rows;
}

TEST_P(SplittingTest, ChunkedPrefillIsTheWhole) {
  OwnedProblem owned = MakeProblem(CausalSpec(), TestSeed());
  AttentionProblem& problem = owned.problem;
  const Expected expected = ComputeExpected(problem);
  ASSERT_OK_AND_ASSIGN(const Results whole, Run(problem));
  const TensorView query = problem.query;
  const KeyValueBlock keys = problem.key_value[0];
  for (int64_t begin = 0; begin < kLength; begin += 32) {
    const int64_t end = std::min(kLength, begin + 32);
    SCOPED_TRACE(begin);
    // This chunk's queries, and the keys that exist by then.
    problem.query = Slice(query, 2, begin, end);
    problem.key_value[0] = {.key = Slice(keys.key, 2, 0, end),
                            .value = Slice(keys.value, 2, 0, end)};
    problem.masks.query_offset = begin;
    ASSERT_OK_AND_ASSIGN(const Results chunk, Run(problem));
    const int64_t width = expected.value_width;
    const auto tolerances = OutputTolerances(expected, DataType::kFloat32);
    EXPECT_TRUE(IsWithin("output", chunk.output.ToDoubles(),
                         RowsOf(whole.output.ToDoubles(), width, begin, end),
                         RowsOf(tolerances, width, begin, end)));
    EXPECT_TRUE(IsWithin("lse", chunk.lse->ToDoubles(),
                         RowsOf(whole.lse->ToDoubles(), 1, begin, end),
                         RowsOf(LseTolerances(expected), 1, begin, end)));
  }
}

// What several machines with a part of the keys each would merge.
struct Merged {
  std::vector<double> output;
  std::vector<double> lse;
};

Merged MergeByLse(const std::vector<Results>& shards, int64_t width) {
  Merged merged;
  const size_t rows = shards[0].lse->ToDoubles().size();
  for (size_t row = 0; row < rows; ++row) {
    double sum = 0;
    std::vector<double> output(width, 0.0);
    for (const Results& shard : shards) {
      const double share = std::exp(shard.lse->ToDoubles()[row]);
      const std::vector<double> rows_of_shard = shard.output.ToDoubles();
      sum += share;
      for (int64_t x = 0; x < width; ++x) {
        output[x] += share * rows_of_shard[row * width + x];
      }
    }
    for (double& element : output) element /= sum;
    merged.lse.push_back(std::log(sum));
    merged.output.insert(merged.output.end(), output.begin(), output.end());
  }
  return merged;
}

// Of shards one has the sinks.
TEST_P(SplittingTest, ShardsOfKeysMergedByLseAreTheWhole) {
  ProblemSpec spec = CausalSpec();
  spec.alibi_slopes = PerHeadShape::kPerHead;
  spec.sinks = PerHeadShape::kPerHead;
  OwnedProblem owned = MakeProblem(spec, TestSeed());
  AttentionProblem& problem = owned.problem;
  const Expected expected = ComputeExpected(problem);
  const KeyValueBlock keys = problem.key_value[0];
  const std::optional<TensorView> sinks = problem.sinks;
  std::vector<Results> shards;
  for (const auto& [begin, end] :
       {std::pair<int64_t, int64_t>{0, 7}, {7, 40}, {40, kLength}}) {
    problem.key_value[0] = {.key = Slice(keys.key, 2, begin, end),
                            .value = Slice(keys.value, 2, begin, end)};
    problem.masks.key_offset = begin;
    problem.sinks = begin == 7 ? sinks : std::nullopt;
    ASSERT_OK_AND_ASSIGN(Results shard, Run(problem));
    shards.push_back(std::move(shard));
  }
  const Merged merged = MergeByLse(shards, expected.value_width);
  EXPECT_TRUE(IsWithin("output", merged.output, expected.output,
                       OutputTolerances(expected, DataType::kFloat32)));
  EXPECT_TRUE(
      IsWithin("lse", merged.lse, expected.lse, LseTolerances(expected)));
}

INSTANTIATE_FOR_BACKENDS(SplittingTest);

}  // namespace
}  // namespace attention::test
