#include "attention_client/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/client/held_server.h"

namespace attention::client {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tensor Normal(Shape shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return Tensor::FromFloats(std::move(shape), values);
}

// Rows begin to end of a tensor (L, D).
Tensor Rows(const Tensor& tensor, size_t begin, size_t end) {
  const auto width = static_cast<size_t>(tensor.shape()[1]);
  const std::vector<float> values = tensor.ToFloats();
  return Tensor::FromFloats(
      {static_cast<int64_t>(end - begin), tensor.shape()[1]},
      absl::MakeSpan(values).subspan(begin * width, (end - begin) * width));
}

AttendResult Shard(const std::vector<float>& output,
                   const std::vector<float>& lse) {
  AttendResult shard;
  const auto rows = static_cast<int64_t>(lse.size());
  const int64_t width = static_cast<int64_t>(output.size()) / rows;
  shard.output = Tensor::FromFloats({rows, width}, output);
  shard.lse = Tensor::FromFloats({rows}, lse);
  return shard;
}

TEST(MergeTest, ShardsOnTwoServersGiveTheResultOfAllKeys) {
  const auto one = StartServer();
  const auto other = StartServer();
  AttendRequest request;
  request.query = Normal({4, 8}, 1);
  request.key = Normal({50, 8}, 2);
  request.value = Normal({50, 6}, 3);
  request.causal = Causal::kTopLeft;
  request.query_offset = 20;  // the second shard has no key for the first row
  request.return_lse = true;
  AttendRequest first = request;
  first.key = Rows(request.key, 0, 21);
  first.value = Rows(request.value, 0, 21);
  AttendRequest second = request;
  second.key = Rows(request.key, 21, 50);
  second.value = Rows(request.value, 21, 50);
  second.key_offset = 21;

  std::vector<AttendResult> shards;
  for (const auto& [server, part] :
       {std::pair(&one, first), std::pair(&other, second)}) {
    const auto client = Client::Create({.target = (*server)->address()});
    ASSERT_TRUE(client.ok()) << client.status();
    auto result = client->Attend(part);
    ASSERT_TRUE(result.ok()) << result.status();
    shards.push_back(*std::move(result));
  }
  EXPECT_EQ(shards[1].lse->ToFloats()[0], -kInfinity);
  const auto merged = Merge(shards);
  ASSERT_TRUE(merged.ok()) << merged.status();

  const auto client = Client::Create({.target = one->address()});
  ASSERT_TRUE(client.ok()) << client.status();
  const auto whole = client->Attend(request);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(merged->output.shape(), whole->output.shape());
  EXPECT_THAT(merged->output.ToFloats(),
              Pointwise(FloatNear(1e-5F), whole->output.ToFloats()));
  EXPECT_THAT(merged->lse->ToFloats(),
              Pointwise(FloatNear(1e-5F), whole->lse->ToFloats()));
}

TEST(MergeTest, AShardWeighsAsMuchAsItsExponentials) {
  const auto merged = Merge(
      {Shard({1, 10}, {std::log(1.0F)}), Shard({5, 50}, {std::log(3.0F)})});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_THAT(merged->output.ToFloats(),
              Pointwise(FloatNear(1e-6F), {4.0F, 40.0F}));
  EXPECT_THAT(merged->lse->ToFloats(),
              ElementsAre(FloatNear(std::log(4.0F), 1e-6F)));
}

TEST(MergeTest, RowsWithoutKeysAddNothingAndStayEmpty) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto merged = Merge({Shard({nan, 0}, {-kInfinity, -kInfinity}),
                             Shard({2, 0}, {500, -kInfinity})});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_THAT(merged->output.ToFloats(), ElementsAre(2, 0));
  EXPECT_THAT(merged->lse->ToFloats(), ElementsAre(500, -kInfinity));
}

TEST(MergeTest, ANaNStaysInItsRow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto merged = Merge({Shard({nan, 1}, {nan, 0}), Shard({2, 3}, {0, 0})});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_TRUE(std::isnan(merged->output.ToFloats()[0]));
  EXPECT_EQ(merged->output.ToFloats()[1], 2);
}

TEST(MergeTest, PackedResultsHaveTheirLseByHeads) {
  // Two tokens of three heads: output (2, 3, 1), lse (3, 2).
  std::vector<AttendResult> shards(2);
  for (AttendResult& shard : shards) {
    shard.lse = Tensor::FromFloats({3, 2}, {0, 0, 0, 0, 0, 0});
  }
  shards[0].output = Tensor::FromFloats({2, 3, 1}, {1, 2, 3, 4, 5, 6});
  shards[1].output = Tensor::FromFloats({2, 3, 1}, {0, 0, 0, 0, 0, 0});
  // The second shard has no key for the second head's first token.
  shards[1].lse = Tensor::FromFloats({3, 2}, {0, 0, -kInfinity, 0, 0, 0});
  const auto merged = Merge(shards, {.packed = true});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_THAT(merged->output.ToFloats(), ElementsAre(0.5, 2, 1.5, 2, 2.5, 3));
}

TEST(MergeTest, WhatCannotBeMergedIsNamed) {
  AttendResult without = Shard({1}, {0});
  without.lse.reset();
  const struct {
    std::vector<AttendResult> shards;
    const char* said;
  } cases[] = {
      {{}, "shards: none (expected 1 or more)"},
      {{Shard({1}, {0}), without}, "shards[1].lse: missing"},
      {{Shard({1}, {0}), Shard({1, 2}, {0})},
       "shards[1].output: FP32 [1, 2] (expected FP32 [1, 1])"},
  };
  for (const auto& [shards, said] : cases) {
    const auto merged = Merge(shards);
    EXPECT_EQ(merged.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(merged.status().message()), HasSubstr(said));
  }
  const auto packed = Merge({Shard({1}, {0})}, {.packed = true});
  EXPECT_THAT(std::string(packed.status().message()),
              HasSubstr("expected (T, Hq, Dv)"));
}

}  // namespace
}  // namespace attention::client
