#include "core/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/tensor_view.h"

namespace attention {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kHuge = int64_t{1} << 40;

TEST(ElementCount, IsTheProductOfTheExtents) {
  EXPECT_EQ(ElementCount({2, 10, 3}).value(), 60);
}

TEST(ElementCount, IsOneForAnEmptyShape) {
  EXPECT_EQ(ElementCount({}).value(), 1);
}

TEST(ElementCount, RefusesANegativeExtent) {
  const auto count = ElementCount({2, -1});
  EXPECT_EQ(count.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(count.status().message()),
              HasSubstr("[2, -1] has a negative extent"));
}

TEST(ElementCount, RefusesAProductBeyond63Bits) {
  EXPECT_FALSE(ElementCount({kHuge, kHuge}).ok());
}

TEST(ElementCount, CountsBytesForTheBound) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(ElementCount({most}, 1).ok());
  EXPECT_FALSE(ElementCount({most}, 2).ok());
}

TEST(ElementCount, IsNotExcusedByAZero) {
  EXPECT_FALSE(ElementCount({kHuge, kHuge, 0}).ok());
  EXPECT_FALSE(ElementCount({0, kHuge, kHuge}).ok());
  EXPECT_EQ(ElementCount({kHuge, 0, 3}).value(), 0);
}

TEST(ContiguousStrides, AreRowMajorInBytes) {
  EXPECT_THAT(ContiguousStrides({2, 3, 4}, 4), ElementsAre(48, 16, 4));
}

TEST(ContiguousStrides, DoNotOverflowBesideAZero) {
  EXPECT_THAT(ContiguousStrides({kHuge, 0, 2}, 4), ElementsAre(8, 8, 4));
}

TEST(ViewOfBytes, NamesTheFieldAndBothByteCounts) {
  const std::vector<std::byte> bytes(7);
  const auto view = ViewOfBytes("key", DataType::kFloat16, {2, 2}, bytes);
  EXPECT_EQ(std::string(view.status().message()),
            "key: 7 bytes of data, shape [2, 2] of FP16 needs 8");
}

TEST(ViewOfBytes, SeesExactlyItsBytes) {
  const std::vector<std::byte> bytes(8);
  const auto view = ViewOfBytes("key", DataType::kFloat16, {2, 2}, bytes);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->data, bytes.data());
  EXPECT_THAT(view->strides, ElementsAre(4, 2));
}

}  // namespace
}  // namespace attention
