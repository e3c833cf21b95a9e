#include <cstdint>
#include <ostream>
#include <string>
#include <utility>

#include "core/cuda/plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/cuda/planned.h"

namespace attention::cuda {
namespace {

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
        Choice{"Bf16ScaleOfZero",
               {.type = DataType::kBFloat16,
                .scoring = ScaledDotProduct{.scale = 0}},
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
               {.query_length = 1, .key_length = kSplitUnit},
               Method::kTiles,
               "fp32_tiles"},
        Choice{"Weights", {.wanted = kWeights}, Method::kGemm, "cublas_gemm"},
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
        Choice{"WeightsOfWideBf16Rows",
               {.width = kMmaLargestWidth + 8,
                .type = DataType::kBFloat16,
                .wanted = kWeights},
               Method::kTiles,
               "fp32_tiles"},
        Choice{"WeightsOfBilinear",
               {.scoring = BilinearOf(64), .wanted = kWeights},
               Method::kGemm,
               "cublas_gemm"},
        Choice{"WeightsOfBf16BilinearWhoseQueriesAreFp32",
               {.type = DataType::kBFloat16,
                .scoring = BilinearOf(64),
                .wanted = kWeights},
               Method::kTiles,
               "fp32_tiles"},
        Choice{"HugeScale",
               {.scoring = ScaledDotProduct{1e30}},
               Method::kTiles,
               "fp32_tiles"},
        Choice{"NoKeys", {.key_length = 0}, Method::kNothing, ""},
        Choice{"NoRows", {.query_length = 0}, Method::kNothing, ""},
        Choice{"NoBatch", {.batch = 0}, Method::kNothing, ""},
        Choice{"NothingWanted", {.value_width = 0}, Method::kNothing, ""},
        Choice{"OnlyTheLogSumExp",
               {.value_width = 0, .wanted = {.lse = true}},
               Method::kTiles,
               "fp32_tiles"}),
    [](const auto& test) { return test.param.name; });

struct WgmmaChoice {
  std::string name;
  Spec spec;
  std::string kernel;
};

std::ostream& operator<<(std::ostream& out, const WgmmaChoice& choice) {
  return out << choice.name;
}

class PlanWgmmaTest : public ::testing::TestWithParam<WgmmaChoice> {};

TEST_P(PlanWgmmaTest, TakesTheKernelOnADeviceThatHasIt) {
  DeviceProperties device = kDevice;
  device.wgmma = true;
  EXPECT_EQ(MakePlan(Valid(GetParam().spec), device).kernel, GetParam().kernel);
}

constexpr DataType kBf16 = DataType::kBFloat16;

INSTANTIATE_TEST_SUITE_P(
    Choices, PlanWgmmaTest,
    ::testing::Values(
        WgmmaChoice{"Bf16", {.type = kBf16}, "bf16_wgmma"},
        WgmmaChoice{"Fp16", {.type = DataType::kFloat16}, "fp16_wgmma"},
        WgmmaChoice{"Fp32", {}, "fp32_tiles"},
        WgmmaChoice{"Grouped", {.kv_heads = 2, .type = kBf16}, "bf16_wgmma"},
        WgmmaChoice{"Width128",
                    {.width = 128, .value_width = 128, .type = kBf16},
                    "bf16_wgmma"},
        WgmmaChoice{"Width256",
                    {.width = 256, .value_width = 256, .type = kBf16},
                    "bf16_mma"},
        WgmmaChoice{"NarrowRows",
                    {.width = 24, .value_width = 24, .type = kBf16},
                    "bf16_wgmma"},
        WgmmaChoice{"RowsThatTmaCannotBring",
                    {.width = 36, .value_width = 36, .type = kBf16},
                    "bf16_mma"},
        WgmmaChoice{"ValuesOfAnotherWidth",
                    {.width = 64, .value_width = 32, .type = kBf16},
                    "bf16_mma"},
        WgmmaChoice{"FewRows",
                    {.query_length = kWgmmaRows - 1, .type = kBf16},
                    "bf16_mma"},
        WgmmaChoice{"FewKeys", {.key_length = 1, .type = kBf16}, "bf16_wgmma"},
        WgmmaChoice{"Causal",
                    {.type = kBf16, .causal = Causal::kTopLeft},
                    "bf16_wgmma"},
        WgmmaChoice{"Softcap", {.type = kBf16, .softcap = 10}, "bf16_wgmma"},
        WgmmaChoice{"NegativeScale",
                    {.type = kBf16, .scoring = ScaledDotProduct{.scale = -1}},
                    "bf16_mma"},
        WgmmaChoice{
            "Weights", {.type = kBf16, .wanted = kWeights}, "cublas_gemm"}),
    [](const auto& test) { return test.param.name; });

TEST(PlanWgmmaOptionsTest, OptionsBesideRangesOfKeysAreNotForIt) {
  DeviceProperties device = kDevice;
  device.wgmma = true;
  const auto kernel_with = [&device](const auto& add) {
    ValidatedProblem problem = Valid({.type = kBf16});
    add(problem);
    return MakePlan(problem, device).kernel;
  };
  const auto mask = View(DataType::kBool, {1, 1, 1024, 1024});
  const auto floats = View(DataType::kFloat32, {1, 1, 1024, 1024});
  EXPECT_EQ(kernel_with([](ValidatedProblem&) {}), "bf16_wgmma");
  EXPECT_EQ(kernel_with([&](ValidatedProblem& p) { p.attend_mask = mask; }),
            "bf16_mma");
  EXPECT_EQ(kernel_with([&](ValidatedProblem& p) { p.bias = floats; }),
            "bf16_mma");
  EXPECT_EQ(kernel_with([&](ValidatedProblem& p) {
              p.alibi_slopes = View(DataType::kFloat32, {2, 4});
            }),
            "bf16_mma");
  EXPECT_EQ(kernel_with([](ValidatedProblem& p) { p.dropout.p = 0.5; }),
            "bf16_mma");
}

TEST(PlanWgmmaOptionsTest, ItCanBeLeftOut) {
  DeviceProperties device = kDevice;
  device.wgmma = true;
  EXPECT_EQ(MakePlan(Valid({.type = kBf16}), device, {.wgmma = false}).kernel,
            "bf16_mma");
}

TEST(PlanSupportTest, ADeviceWithTooLittleSharedMemoryIsRefused) {
  DeviceProperties device = kDevice;
  EXPECT_TRUE(CheckSupport(Valid({}), device).ok());
  device.shared_memory_per_block = int64_t{16} * 1024;
  EXPECT_EQ(CheckSupport(Valid({}), device).code(),
            absl::StatusCode::kUnimplemented);
}

TEST(PlanSupportTest,
     ADeviceWithTooLittleSharedMemoryForTensorCoresDoesWithout) {
  const Spec spec = {.width = kMmaLargestWidth,
                     .value_width = kMmaLargestWidth,
                     .type = DataType::kBFloat16};
  DeviceProperties device = kDevice;
  EXPECT_EQ(MakePlan(Valid(spec), device).method, Method::kMma);
  device.shared_memory_per_block = kMmaLeastShared - 1;
  EXPECT_EQ(MakePlan(Valid(spec), device).method, Method::kTiles);
}

TEST(PlanSupportTest, KeysOfAnotherTypeThanQueriesAreRefused) {
  ValidatedProblem problem = Valid({.type = kBf16});
  EXPECT_TRUE(CheckSupport(problem, kDevice).ok());
  problem.key_type = DataType::kInt8;
  const absl::Status status = CheckSupport(problem, kDevice);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            "key: INT8 under a query of BF16 (the cuda backend does not "
            "compute this; --backend auto leaves it to cpu, with tensors in "
            "host memory)");
}

TEST(PlanSupportTest, ResultsThatAreLeftToTheCpuAreNamed) {
  const std::pair<WantedOutputs, const char*> each[] = {
      {{.top_k = 3}, "top_k: 3 (the cuda backend"},
      {{.key_weights = true}, "key_weights (the cuda backend"},
      {{.scores = ScoreStage::kScaled}, "scores (the cuda backend"}};
  for (const auto& [wanted, begin] : each) {
    EXPECT_THAT(CheckSupport(Valid({.wanted = wanted}), kDevice),
                test::StatusIs(absl::StatusCode::kUnimplemented,
                               ::testing::StartsWith(begin)));
  }
}

TEST(PlanSupportTest, RowsWiderThanAKernelCountsAreRefused) {
  const Spec spec = {.batch = 1,
                     .query_heads = 1,
                     .kv_heads = 1,
                     .query_length = 1,
                     .key_length = 1,
                     .width = int64_t{1} << 31};
  EXPECT_EQ(CheckSupport(Valid(spec), kDevice).code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace attention::cuda
