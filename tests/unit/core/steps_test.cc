#include "core/steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace attention {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

Tensor Scores() {
  return Tensor::FromFloats({1, 2, 3}, {1, 2, 3, -1, 0, std::nanf("")});
}

TEST(MaskedSoftmax, LeavesOutWhatLiesBeyondTheLength) {
  const Tensor lens = Tensor::FromInts({1}, {2});
  const auto weights = MaskedSoftmax(Scores().view(), lens.view());
  ASSERT_TRUE(weights.ok()) << weights.status();
  const float first = 1 / (1 + std::exp(1.0F));
  EXPECT_THAT(
      weights->ToFloats(),
      ::testing::Pointwise(::testing::FloatNear(1e-7F),
                           {first, 1 - first, 0.0F, first, 1 - first, 0.0F}));
}

TEST(MaskedSoftmax, TakesALengthPerRow) {
  const Tensor lens = Tensor::FromInts({1, 2}, {1, 0});
  const auto weights = MaskedSoftmax(Scores().view(), lens.view());
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_THAT(weights->ToFloats(), ElementsAre(1, 0, 0, 0, 0, 0));
}

TEST(MaskedSoftmax, GivesUniformRowsWhereAskedFor) {
  const Tensor lens = Tensor::FromInts({1}, {0});
  const auto weights =
      MaskedSoftmax(Scores().view(), lens.view(), EmptyRows::kUniform);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_THAT(weights->ToFloats(), Each(1.0F / 3));
}

TEST(MaskedSoftmax, NamesAWrongLength) {
  const Tensor lens = Tensor::FromInts({1}, {4});
  EXPECT_EQ(
      std::string(
          MaskedSoftmax(Scores().view(), lens.view()).status().message()),
      "valid_lens: element [0] is 4 (expected 0 to 3, the number of keys)");
}

TEST(MaskedSoftmax, NamesScoresOfAWrongRank) {
  const Tensor scores = Tensor::FromFloats({3}, {1, 2, 3});
  EXPECT_EQ(std::string(MaskedSoftmax(scores.view(), {}).status().message()),
            "scores: shape [3] has 1 dimensions (expected 3)");
}

TEST(BatchMatMul, MultipliesEachBatchEntry) {
  const Tensor a = Tensor::FromFloats({2, 1, 2}, {1, 2, 3, 4});
  const Tensor b = Tensor::FromFloats({2, 2, 1}, {5, 6, 7, 8});
  const auto product = BatchMatMul(a.view(), b.view());
  ASSERT_TRUE(product.ok()) << product.status();
  EXPECT_THAT(product->shape(), ElementsAre(2, 1, 1));
  EXPECT_THAT(product->ToFloats(), ElementsAre(17, 53));
}

TEST(BatchMatMul, HasTheTutorialsShape) {
  const Tensor a = Tensor::Create(DataType::kFloat32, {2, 3, 4}).value();
  const Tensor b = Tensor::Create(DataType::kFloat32, {2, 4, 6}).value();
  EXPECT_THAT(BatchMatMul(a.view(), b.view())->shape(), ElementsAre(2, 3, 6));
}

TEST(BatchMatMul, NamesExtentsThatDoNotFit) {
  const Tensor a = Tensor::Create(DataType::kFloat32, {2, 3, 4}).value();
  EXPECT_EQ(std::string(BatchMatMul(a.view(), a.view()).status().message()),
            "b: shape [2, 3, 4] (expected [2, 4, p] to follow a's [2, 3, 4])");
}

}  // namespace
}  // namespace attention
