#include "core/cuda/plan.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/cuda/plan_memory.h"
#include "core/problem.h"
#include "core/validate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attention::cuda {
namespace {

constexpr int64_t kMostBlocks = std::numeric_limits<int32_t>::max();

const DeviceProperties kDevice = {
    .name = "NVIDIA H200",
    .compute_capability = 90,
    .multiprocessors = 132,
    .shared_memory_per_block = int64_t{227} * 1024,
    .memory = int64_t{139} << 30};

// What plans follow from. No tensor has any bytes: plans do not look at them.
struct Spec {
  int64_t batch = 2;
  int64_t query_heads = 4;
  int64_t kv_heads = 4;
  int64_t query_length = 1024;
  int64_t key_length = 1024;
  int64_t width = 64;
  int64_t value_width = 64;
  DataType type = DataType::kFloat32;
  Scoring scoring = ScaledDotProduct();
  std::optional<double> softcap = {};
  Causal causal = Causal::kNone;
  WantedOutputs wanted = {};
};

TensorView View(DataType type, const Shape& shape) {
  return ContiguousView(type, shape, nullptr);
}

AttentionProblem ProblemOf(const Spec& spec) {
  AttentionProblem problem;
  problem.query = View(
      spec.type, {spec.batch, spec.query_heads, spec.query_length, spec.width});
  problem.key_value.push_back(
      {View(spec.type,
            {spec.batch, spec.kv_heads, spec.key_length, spec.width}),
       View(spec.type,
            {spec.batch, spec.kv_heads, spec.key_length, spec.value_width})});
  problem.scoring = spec.scoring;
  problem.softcap = spec.softcap;
  problem.masks.causal = spec.causal;
  problem.wanted = spec.wanted;
  return problem;
}

ValidatedProblem Valid(const Spec& spec) {
  return Validate(ProblemOf(spec)).value();
}

Plan PlanOf(const Spec& spec, const PlanOptions& options = {}) {
  return MakePlan(Valid(spec), kDevice, options);
}

Scoring AdditiveOf(int64_t width, int64_t hidden, int64_t heads = 0) {
  const auto shape = [&](Shape rest) {
    if (heads > 0) rest.insert(rest.begin(), heads);
    return rest;
  };
  return Additive{View(DataType::kFloat32, shape({width, hidden})),
                  View(DataType::kFloat32, shape({width, hidden})),
                  View(DataType::kFloat32, shape({hidden}))};
}

constexpr WantedOutputs kWeights = {.weights = true};

struct Choice {
  std::string name;
  Spec spec;
  Method method;
  std::string kernel;
};

std::ostream& operator<<(std::ostream& out, const Choice& choice) {
  return out << choice.name;
}

class PlanChoiceTest : public ::testing::TestWithParam<Choice> {};

TEST_P(PlanChoiceTest, TakesTheKernel) {
  const Plan plan = PlanOf(GetParam().spec);
  EXPECT_EQ(plan.method, GetParam().method);
  EXPECT_EQ(plan.kernel, GetParam().kernel);
}

INSTANTIATE_TEST_SUITE_P(
    Choices, PlanChoiceTest,
    ::testing::Values(
        Choice{"Fp32", {}, Method::kTiles, "fp32_tiles"},
        Choice{"Fp16", {.type = DataType::kFloat16}, Method::kMma, "fp16_mma"},
        Choice{"Bf16", {.type = DataType::kBFloat16}, Method::kMma, "bf16_mma"},
        Choice{"Bf16TooWideForTheTile",
               {.width = kMmaLargestWidth + 8, .type = DataType::kBFloat16},
               Method::kTiles,
               "fp32_tiles"},
        Choice{"Bf16Gaussian",
               {.type = DataType::kBFloat16, .scoring = Gaussian()},
               Method::kTiles,
               "fp32_tiles"},
        Choice{"Decode",
               {.query_length = 1, .key_length = 65536},
               Method::kTiles,
               "fp32_tiles_split"},
        Choice{"Bf16Decode",
               {.query_length = 1,
                .key_length = 65536,
                .type = DataType::kBFloat16},
               Method::kMma,
               "bf16_mma_split"},
        Choice{"Fp16Decode",
               {.query_length = 1,
                .key_length = 65536,
                .type = DataType::kFloat16},
               Method::kMma,
               "fp16_mma_split"},
        Choice{"DecodeOfFewKeys",
               {.query_length = 1, .key_length = 200},
               Method::kTiles,
               "fp32_tiles"},
        Choice{"Weights",
               {.wanted = kWeights},
               Method::kProducts,
               "cublas_products"},
        Choice{"WeightsOfFewRows",
               {.query_length = 8, .wanted = kWeights},
               Method::kTiles,
               "fp32_tiles_split"},
        Choice{"WeightsOfGaussian",
               {.scoring = Gaussian(), .wanted = kWeights},
               Method::kTiles,
               "fp32_tiles"},
        Choice{"Additive",
               {.scoring = AdditiveOf(64, 32)},
               Method::kTiles,
               "fp32_tiles"},
        Choice{"HugeScale",
               {.scoring = ScaledDotProduct{1e30}},
               Method::kCareful,
               "fp64_rows"},
        Choice{"ScaleOfZero",
               {.scoring = ScaledDotProduct{0.0}},
               Method::kCareful,
               "fp64_rows"},
        Choice{"TinySigma",
               {.scoring = Gaussian{1e-15}},
               Method::kCareful,
               "fp64_rows"},
        Choice{
            "TinySoftcap", {.softcap = 1e-30}, Method::kCareful, "fp64_rows"},
        Choice{"NoKeys", {.key_length = 0}, Method::kNothing, ""},
        Choice{"NoRows", {.query_length = 0}, Method::kNothing, ""},
        Choice{"NoBatch", {.batch = 0}, Method::kNothing, ""},
        Choice{"NothingWanted", {.value_width = 0}, Method::kNothing, ""},
        Choice{"OnlyTheLogSumExp",
               {.value_width = 0, .wanted = {.lse = true}},
               Method::kTiles,
               "fp32_tiles"}),
    [](const auto& test) { return test.param.name; });

// Shapes that are large in one way or another.
std::vector<Spec> LargeShapes() {
  return {
      {.batch = 64,
       .query_heads = 128,
       .kv_heads = 8,
       .query_length = 16384,
       .key_length = 16384,
       .width = 128,
       .value_width = 128},
      {.batch = 1,
       .query_heads = 1,
       .kv_heads = 1,
       .query_length = 1 << 30,
       .key_length = 4,
       .width = 1,
       .value_width = 1},
      {.batch = 1,
       .query_heads = 1,
       .kv_heads = 1,
       .query_length = 1,
       .key_length = int64_t{1} << 32,
       .width = 64,
       .value_width = 64},
      {.batch = 1 << 20,
       .query_heads = 64,
       .kv_heads = 64,
       .query_length = 1,
       .key_length = 1,
       .width = 1,
       .value_width = 1},
      {.query_length = 4096,
       .key_length = 4096,
       .width = 100'000,
       .value_width = 100'000},
      {.query_length = 8192, .key_length = 8192, .wanted = kWeights},
      {.query_length = 8192, .scoring = AdditiveOf(64, 512)},
      {.type = DataType::kFloat16},
  };
}

TEST(PlanTest, LaunchesStayWithinTheGridThatADeviceHas) {
  for (const Spec& spec : LargeShapes()) {
    const Plan plan = PlanOf(spec);
    for (const int64_t blocks :
         {plan.attend_blocks, plan.weights_blocks, plan.careful_blocks}) {
      EXPECT_GE(blocks, kDevice.multiprocessors);
      EXPECT_LE(blocks, kMostBlocks);
    }
  }
}

TEST(PlanTest, SharedMemoryIsWithinWhatADeviceHas) {
  for (const Spec& spec : LargeShapes()) {
    const AttentionArgs args = PlanOf(spec).args;
    const int64_t most = kDevice.shared_memory_per_block;
    EXPECT_LE(AttendShape(args).shared_bytes, most);
    EXPECT_LE(WeightsShape(args).shared_bytes, most);
    EXPECT_LE(CarefulShape(args).shared_bytes, most);
    if (ServesMma(args)) {
      EXPECT_LE(MmaShape(args).shared_bytes, most);
    }
  }
}

TEST(PlanTest, ADeviceWithTooLittleSharedMemoryIsRefused) {
  DeviceProperties device = kDevice;
  EXPECT_TRUE(CheckSupport(Valid({}), device).ok());
  device.shared_memory_per_block = int64_t{16} * 1024;
  EXPECT_EQ(CheckSupport(Valid({}), device).code(),
            absl::StatusCode::kUnimplemented);
}

TEST(PlanTest, ADeviceWithTooLittleSharedMemoryForTensorCoresDoesWithout) {
  const Spec spec = {.width = kMmaLargestWidth,
                     .value_width = kMmaLargestWidth,
                     .type = DataType::kBFloat16};
  DeviceProperties device = kDevice;
  EXPECT_EQ(MakePlan(Valid(spec), device).method, Method::kMma);
  device.shared_memory_per_block = MmaSharedBytes(kMmaLargestWidth) - 1;
  EXPECT_EQ(MakePlan(Valid(spec), device).method, Method::kTiles);
}

TEST(PlanTest, RowsWiderThanAKernelCountsAreRefused) {
  const Spec spec = {.batch = 1,
                     .query_heads = 1,
                     .kv_heads = 1,
                     .query_length = 1,
                     .key_length = 1,
                     .width = int64_t{1} << 31};
  EXPECT_EQ(CheckSupport(Valid(spec), kDevice).code(),
            absl::StatusCode::kUnimplemented);
}

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

TEST(PlanTest, MemoryBeyondTensorsDoesNotGrowWithTheProductOfLengths) {
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

TEST(PlanTest, BuffersDoNotOverlapAndAreAligned) {
  Spec spec = {.scoring = AdditiveOf(64, 32),
               .causal = Causal::kTopLeft,
               .wanted = {.weights = true, .lse = true}};
  const Plan plan = PlanOf(spec);
  std::vector<Buffer> buffers = {
      plan.query,        plan.key,           plan.value,
      plan.query_matrix, plan.key_matrix,    plan.tanh_weights,
      plan.key_ranges,   plan.projected_key, plan.projected_query,
      plan.careful_rows, plan.row_max,       plan.row_sum,
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

TEST(PlanTest, MemoryThatNoDeviceHasSaturates) {
  const Spec spec = {.batch = 1,
                     .query_heads = 1,
                     .kv_heads = 1,
                     .query_length = int64_t{1} << 28,
                     .key_length = int64_t{1} << 28,
                     .width = 1,
                     .value_width = 1,
                     .scoring = AdditiveOf(1, int64_t{1} << 30)};
  EXPECT_EQ(PlanOf(spec).bytes, int64_t{1} << 62);
}

TEST(PlanTest, SplitsCoverEveryKeyOnce) {
  for (const int64_t keys : {1, 511, 512, 513, 5000, 65536, 1'000'003}) {
    const AttentionArgs args =
        PlanOf({.query_length = 1, .key_length = keys}).args;
    EXPECT_GE(args.splits * args.keys_per_split, keys);
    EXPECT_LT((args.splits - 1) * args.keys_per_split, keys);
    EXPECT_EQ(args.keys_per_split % kSplitUnit, 0);
  }
}

TEST(PlanTest, SplitsDoNotFollowFromTheBatch) {
  for (const int64_t keys : {4096, 100'000}) {
    const Plan one =
        PlanOf({.batch = 1, .query_length = 1, .key_length = keys});
    const Plan many =
        PlanOf({.batch = 64, .query_length = 1, .key_length = keys});
    EXPECT_GT(one.args.splits, 1);
    EXPECT_EQ(one.args.splits, many.args.splits);
    EXPECT_EQ(one.args.keys_per_split, many.args.keys_per_split);
  }
}

TEST(PlanTest, FewQueriesOfHeadsThatReadTheSameKeysShareTiles) {
  Spec spec = {.query_heads = 32, .kv_heads = 8, .query_length = 1};
  EXPECT_EQ(PlanOf(spec).args.heads_per_lane, 4);
  spec.query_length = 1024;
  EXPECT_EQ(PlanOf(spec).args.heads_per_lane, 1);
}

TEST(PlanTest, HeadsWithParametersOfTheirOwnDoNotShareTiles) {
  const Spec spec = {.query_heads = 8,
                     .kv_heads = 2,
                     .query_length = 1,
                     .scoring = AdditiveOf(64, 32, 8)};
  const Plan plan = PlanOf(spec);
  EXPECT_EQ(plan.args.heads_per_lane, 1);
  EXPECT_EQ(plan.args.key.heads, 8);
  EXPECT_EQ(plan.args.tanh_weight_stride, 32);
  EXPECT_EQ(plan.project_key->matrix_stride, 64 * 32);
}

TEST(PlanTest, ProjectedRowsStandInForQueriesAndKeys) {
  const Plan plan =
      PlanOf({.query_heads = 8, .kv_heads = 2, .scoring = AdditiveOf(64, 32)});
  ASSERT_TRUE(plan.project_query && plan.project_key);
  EXPECT_EQ(plan.project_query->from.width, 64);
  EXPECT_EQ(plan.project_query->to_width, 32);
  EXPECT_EQ(plan.project_key->to_heads, 2);
  EXPECT_EQ(plan.project_key->matrix_stride, 0);
  EXPECT_EQ(plan.args.query.type, Element::kFloat64);
  EXPECT_EQ(plan.args.query.width, 32);
  EXPECT_EQ(plan.projected_query.bytes, 2 * 8 * 1024 * 32 * 8);
  EXPECT_EQ(plan.projected_key.bytes, 2 * 2 * 1024 * 32 * 8);
}

TEST(PlanTest, ProductsHoldWholeLanesOrAPartOfOne) {
  const Spec spec = {
      .query_heads = 8, .kv_heads = 2, .wanted = kWeights};  // lanes of 4096
  EXPECT_EQ(PlanOf(spec).product_rows, 2 * 4096);
  EXPECT_EQ(
      PlanOf(spec, {.score_bytes = int64_t{4096} * 4096 + 1}).product_rows,
      4096);
  EXPECT_EQ(PlanOf(spec, {.score_bytes = int64_t{100} * 4096}).product_rows,
            100);
  EXPECT_EQ(PlanOf(spec, {.score_bytes = 1}).product_rows, 1);
}

TEST(PlanTest, KeyRangesAreThereOnlyWhereAMaskNeedsThem) {
  EXPECT_EQ(PlanOf({}).key_ranges.bytes, 0);
  EXPECT_EQ(PlanOf({.causal = Causal::kBottomRight}).key_ranges.bytes,
            2 * 1024 * 16);
}

TEST(PlanTest, MasksAreHeldOnceWhereTheyAreBroadcast) {
  TensorView bias = View(DataType::kFloat16, {2, 4, 10, 20});
  EXPECT_EQ(CompactOf(bias).elements, 2 * 4 * 10 * 20);
  EXPECT_THAT(CompactOf(bias).strides,
              ::testing::ElementsAre(4 * 10 * 20, 10 * 20, 20, 1));
  bias.strides[1] = 0;
  bias.strides[3] = 0;
  EXPECT_EQ(CompactOf(bias).elements, 2 * 10);
  EXPECT_THAT(CompactOf(bias).extents, ::testing::ElementsAre(2, 1, 10, 1));
  EXPECT_THAT(CompactOf(bias).strides, ::testing::ElementsAre(10, 0, 1, 0));
}

}  // namespace
}  // namespace attention::cuda
