#include "core/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace attention {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Tensor, StartsZeroFilledAndAligned) {
  const Tensor tensor = Tensor::Create(DataType::kFloat32, {3, 5}).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data()) % 64, 0U);
  for (const float value : tensor.ToFloats()) EXPECT_EQ(value, 0);
}

TEST(Tensor, MayBeEmpty) {
  const Tensor tensor = Tensor::Create(DataType::kFloat32, {3, 0}).value();
  EXPECT_EQ(tensor.element_count(), 0);
  EXPECT_TRUE(tensor.bytes().empty());
}

TEST(Tensor, CopiesAreIndependent) {
  Tensor original = Tensor::FromFloats({2}, {1, 2});
  const Tensor copy = original;
  original.data()[0] = std::byte{0xFF};
  EXPECT_THAT(copy.ToFloats(), ElementsAre(1, 2));
}

TEST(Tensor, CopyOfAnEmptyOneIsEmpty) {
  const Tensor empty;
  Tensor copy = Tensor::FromFloats({1}, {1});
  copy = empty;
  EXPECT_EQ(copy.element_count(), 0);
}

// NOLINTBEGIN(bugprone-use-after-move): what is left behind.
TEST(Tensor, IsEmptyOnceAnotherIsMadeOfIt) {
  Tensor tensor = Tensor::FromInts({1, 2}, {1, 2});
  EXPECT_THAT(Tensor(std::move(tensor)).ToFloats(), ElementsAre(1, 2));
  EXPECT_EQ(tensor.type(), DataType::kFloat32);
  EXPECT_THAT(tensor.shape(), ElementsAre(0));
  EXPECT_THAT(tensor.ToFloats(), IsEmpty());
}

TEST(Tensor, IsEmptyOnceItIsMovedToAnother) {
  Tensor tensor = Tensor::FromInts({1, 2}, {1, 2});
  Tensor other = Tensor::FromFloats({1}, {3});
  other = std::move(tensor);
  EXPECT_THAT(other.ToFloats(), ElementsAre(1, 2));
  EXPECT_EQ(tensor.type(), DataType::kFloat32);
  EXPECT_THAT(tensor.shape(), ElementsAre(0));
  EXPECT_THAT(tensor.ToFloats(), IsEmpty());
}
// NOLINTEND(bugprone-use-after-move)

TEST(Tensor, RefusesMoreThanMemoryHolds) {
  const auto tensor = Tensor::Create(DataType::kFloat32, {int64_t{1} << 58});
  EXPECT_EQ(tensor.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Tensor, ConvertsIntegersToFloats) {
  EXPECT_THAT(Tensor::FromInts({3}, {-1, 0, 7}).ToFloats(),
              ElementsAre(-1, 0, 7));
}

}  // namespace
}  // namespace attention
