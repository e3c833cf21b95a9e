#include "core/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attention {
namespace {

using ::testing::ElementsAre;

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
