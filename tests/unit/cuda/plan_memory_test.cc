#include "core/cuda/plan_memory.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/cuda/planned.h"

namespace attention::cuda {
namespace {

// Bytes of inputs and results, which are the problem's own.
int64_t BytesOfTensors(const Plan& plan) {
  int64_t bytes = 0;
  for (const Buffer& buffer :
       {plan.query, plan.key, plan.value, plan.output, plan.weights, plan.lse,
        plan.attend_mask, plan.bias}) {
    bytes += buffer.bytes;
  }
  return bytes;
}

TEST(PlanMemoryTest, MemoryBeyondTensorsDoesNotGrowWithTheProductOfLengths) {
  for (const WantedOutputs wanted : {WantedOutputs(), kWeights}) {
    for (const DataType type : {DataType::kFloat32, DataType::kFloat16}) {
      Spec spec = {.query_length = 16384,
                   .key_length = 16384,
                   .type = type,
                   .causal = Causal::kTopLeft,
                   .wanted = wanted};
      const Plan one = PlanOf(spec);
      spec.query_length *= 4;
      spec.key_length *= 4;
      const Plan four = PlanOf(spec);
      EXPECT_LE(four.bytes - BytesOfTensors(four),
                4 * (one.bytes - BytesOfTensors(one)) + (1 << 20));
    }
  }
}

TEST(PlanMemoryTest, BuffersDoNotOverlapAndAreAligned) {
  Spec spec = {.scoring = AdditiveOf(64, 32),
               .causal = Causal::kTopLeft,
               .wanted = {.weights = true, .lse = true}};
  const Plan plan = PlanOf(spec);
  std::vector<Buffer> buffers = {
      plan.query,        plan.key,           plan.value,
      plan.query_matrix, plan.key_matrix,    plan.term_weights,
      plan.key_ranges,   plan.projected_key, plan.projected_query,
      plan.marks,        plan.row_max,       plan.row_sum,
      plan.output,       plan.weights,       plan.lse};
  std::sort(
      buffers.begin(), buffers.end(),
      [](const Buffer& a, const Buffer& b) { return a.offset < b.offset; });
  int64_t end = 0;
  for (const Buffer& buffer : buffers) {
    EXPECT_GT(buffer.bytes, 0);
    EXPECT_EQ(buffer.offset % 256, 0);
    EXPECT_GE(buffer.offset, end);
    end = buffer.offset + buffer.bytes;
  }
  EXPECT_LE(end, plan.bytes);
}

TEST(PlanMemoryTest, MemoryThatNoDeviceHasSaturates) {
  const Spec spec = {.batch = 1,
                     .query_heads = 1,
                     .kv_heads = 1,
                     .query_length = int64_t{1} << 29,
                     .key_length = int64_t{1} << 29,
                     .width = 1,
                     .value_width = 1,
                     .scoring = AdditiveOf(1, int64_t{1} << 30)};
  EXPECT_EQ(PlanOf(spec).bytes, int64_t{1} << 62);
}

TEST(PlanMemoryTest, ProductsHoldWholeGroupsOrAPartOfOne) {
  const Spec spec = {.query_heads = 8,
                     .kv_heads = 2,
                     .wanted = kWeights};  // 4096 rows a kv group
  EXPECT_EQ(PlanOf(spec).gemm_rows, 2 * 4096);
  EXPECT_EQ(PlanOf(spec, {.score_bytes = int64_t{4096} * 4096 + 1}).gemm_rows,
            4096);
  EXPECT_EQ(PlanOf(spec, {.score_bytes = int64_t{100} * 4096}).gemm_rows, 100);
  EXPECT_EQ(PlanOf(spec, {.score_bytes = 1}).gemm_rows, 1);
}

TEST(PlanMemoryTest, KeyRangesAreThereOnlyWhereAMaskNeedsThem) {
  EXPECT_EQ(PlanOf({}).key_ranges.bytes, 0);
  EXPECT_EQ(PlanOf({.causal = Causal::kBottomRight}).key_ranges.bytes,
            2 * 1024 * 16);
}

TEST(PlanMemoryTest, MasksAreHeldOnceWhereTheyAreBroadcast) {
  TensorView bias = View(DataType::kFloat16, {2, 4, 10, 20});
  // Rows of 20 numbers, at multiples of 16 bytes.
  EXPECT_EQ(CompactOf(bias).elements, 2 * 4 * 10 * 24);
  EXPECT_THAT(CompactOf(bias).strides,
              ::testing::ElementsAre(4 * 10 * 24, 10 * 24, 24, 1));
  bias.strides[1] = 0;
  bias.strides[3] = 0;
  EXPECT_EQ(CompactOf(bias).elements, 2 * 10);
  EXPECT_THAT(CompactOf(bias).extents, ::testing::ElementsAre(2, 1, 10, 1));
  EXPECT_THAT(CompactOf(bias).strides, ::testing::ElementsAre(10, 0, 1, 0));
}

}  // namespace
}  // namespace attention::cuda
