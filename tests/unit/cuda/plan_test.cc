#include "core/cuda/plan.h"

#include <cstdint>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/cuda/planned.h"

namespace attention::cuda {
namespace {

TEST(PlanTest, LaunchesStayWithinTheGridThatADeviceHas) {
  for (const Spec& spec : LargeShapes()) {
    EXPECT_THAT(CheckSupport(Valid(spec), kDevice), test::IsOk());
    const AttentionArgs args = PlanOf(spec).args;
    EXPECT_LE(AttendShape(args).blocks, kMostGridBlocks);
    EXPECT_LE(WeightsShape(args).blocks, kMostGridBlocks);
  }
}

TEST(PlanTest, MoreBlocksThanAGridHasAreRefused) {
  const Spec spec = {.batch = int64_t{1} << 31, .query_length = 1};
  EXPECT_EQ(CheckSupport(Valid(spec), kDevice).code(),
            absl::StatusCode::kUnimplemented);
}

TEST(PlanTest, SharedMemoryIsWithinWhatADeviceHas) {
  for (const Spec& spec : LargeShapes()) {
    const AttentionArgs args = PlanOf(spec).args;
    const int64_t most = kDevice.shared_memory_per_block;
    EXPECT_LE(AttendShape(args).shared_bytes, most);
    EXPECT_LE(WeightsShape(args).shared_bytes, most);
    if (ServesMma(args)) {
      EXPECT_LE(MmaShape(args).shared_bytes, most);
    }
  }
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

TEST(PlanTest, DecodeOfOneShortSequenceKeepsMostOfADeviceBusy) {
  const Plan plan = PlanOf({.batch = 1,
                            .query_heads = 32,
                            .kv_heads = 8,
                            .query_length = 1,
                            .key_length = 2048,
                            .width = 128,
                            .value_width = 128,
                            .type = DataType::kBFloat16});
  EXPECT_GE(MmaShape(plan.args).blocks, kDevice.multiprocessors * 9 / 10);
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
  EXPECT_EQ(PlanOf(spec).args.heads_per_group, 4);
  spec.query_length = 1024;
  EXPECT_EQ(PlanOf(spec).args.heads_per_group, 1);
}

TEST(PlanTest, HeadsWithParametersOfTheirOwnDoNotShareTiles) {
  const Spec spec = {.query_heads = 8,
                     .kv_heads = 2,
                     .query_length = 1,
                     .scoring = AdditiveOf(64, 32, 8)};
  const Plan plan = PlanOf(spec);
  EXPECT_EQ(plan.args.heads_per_group, 1);
  EXPECT_EQ(plan.args.key.heads, 8);
  EXPECT_EQ(plan.args.term_weight_stride, 32);
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
  EXPECT_EQ(plan.args.query.type, Element::kFloat32);
  EXPECT_EQ(plan.args.query.width, 32);
  EXPECT_EQ(plan.projected_query.bytes, 2 * 8 * 1024 * 32 * 4);
  EXPECT_EQ(plan.projected_key.bytes, 2 * 2 * 1024 * 32 * 4);
}

TEST(PlanTest, FactorsStayWithinWhatFp32Has) {
  constexpr double kMost = std::numeric_limits<float>::max();
  EXPECT_EQ(PlanOf({.scoring = ScaledDotProduct{2e38}}).args.factor, 2e38);
  EXPECT_EQ(PlanOf({.scoring = ScaledDotProduct{0.0}}).args.factor, 0);
  EXPECT_DOUBLE_EQ(PlanOf({.scoring = Gaussian{1e-19}}).args.factor, -5e37);
  EXPECT_EQ(PlanOf({.softcap = 1e-30}).args.softcap, 0x1p-60);
  EXPECT_EQ(PlanOf({.softcap = kMost}).args.softcap, kMost);
  EXPECT_EQ(PlanOf({.softcap = 30}).args.softcap, 30);
}

}  // namespace
}  // namespace attention::cuda
