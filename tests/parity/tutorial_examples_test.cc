// The examples that attention is taught with, and what they print; those that
// a server answers on every backend by its name.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/steps.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/connected_server.h"
#include "tests/support/random.h"
#include "tests/support/results.h"
#include "tests/support/status_matchers.h"

namespace attention::test {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using ::testing::Ge;
using ::testing::Pointwise;

Tensor Normal(const Shape& shape, uint64_t seed) {
  Random random(TestSeed() + seed);
  std::vector<float> values(ElementCount(shape).value());
  for (float& value : values) value = static_cast<float>(random.Normal());
  return Tensor::FromFloats(shape, values);
}

// Scores (2, 2, 4); one length for each of the four rows.
void ExpectMaskedRows(const Tensor& weights, const std::vector<int>& lengths) {
  ASSERT_EQ(weights.shape(), (Shape{2, 2, 4}));
  const std::vector<float> values = weights.ToFloats();
  for (size_t row = 0; row < 4; ++row) {
    float sum = 0;
    for (int j = 0; j < 4; ++j) {
      const float weight = values[row * 4 + j];
      sum += weight;
      if (j < lengths[row]) {
        EXPECT_GT(weight, 0) << row << ", " << j;
      } else {
        EXPECT_EQ(weight, 0) << row << ", " << j;
      }
    }
    EXPECT_NEAR(sum, 1, 1e-6) << row;
  }
}

TEST(TutorialExamplesTest, MaskedSoftmaxWithOneLengthPerBatchEntry) {
  const Tensor lengths = Tensor::FromInts({2}, {2, 3});
  ASSERT_OK_AND_ASSIGN(
      const Tensor weights,
      MaskedSoftmax(Normal({2, 2, 4}, 1).view(), lengths.view()));
  ExpectMaskedRows(weights, {2, 2, 3, 3});
}

TEST(TutorialExamplesTest, MaskedSoftmaxWithOneLengthPerRow) {
  const Tensor lengths = Tensor::FromInts({2, 2}, {1, 3, 2, 4});
  ASSERT_OK_AND_ASSIGN(
      const Tensor weights,
      MaskedSoftmax(Normal({2, 2, 4}, 2).view(), lengths.view()));
  ExpectMaskedRows(weights, {1, 3, 2, 4});
}

TEST(TutorialExamplesTest, BatchMatMulOfTwoByThreeByFour) {
  const Tensor a = Normal({2, 3, 4}, 3);
  const Tensor b = Normal({2, 4, 6}, 4);
  ASSERT_OK_AND_ASSIGN(const Tensor product, BatchMatMul(a.view(), b.view()));
  ASSERT_EQ(product.shape(), (Shape{2, 3, 6}));
  const std::vector<double> x = a.ToDoubles();
  const std::vector<double> y = b.ToDoubles();
  std::vector<float> expected;
  for (int n = 0; n < 2; ++n) {
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 6; ++j) {
        double sum = 0;
        for (int k = 0; k < 4; ++k) {
          sum += x[(n * 3 + i) * 4 + k] * y[(n * 4 + k) * 6 + j];
        }
        expected.push_back(static_cast<float>(sum));
      }
    }
  }
  EXPECT_THAT(product.ToFloats(), Pointwise(FloatNear(1e-6F), expected));
}

// Equal keys, values 0 to 39 in rows of four, the first 2 and 6 of them valid.
client::AttendRequest ToyRequest(const Tensor& query) {
  client::AttendRequest request;
  request.query = query;
  request.key = Tensor::FromFloats({2, 10, 2}, std::vector<float>(40, 1));
  std::vector<float> values(80);
  for (int n = 0; n < 80; ++n) values[n] = static_cast<float>(n % 40);
  request.value = Tensor::FromFloats({2, 10, 4}, values);
  request.valid_lens = Tensor::FromInts({2}, {2, 6});
  return request;
}

class TutorialServiceTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto server = ConnectedServer::Start(ConnectedServer::Options(GetParam()));
    ASSERT_THAT(server, IsOk());
    server_.emplace(*std::move(server));
  }

  void ExpectMeans(const client::AttendRequest& request) {
    ASSERT_OK_AND_ASSIGN(const client::AttendResult result,
                         server_->client().Attend(request));
    EXPECT_EQ(result.output.shape(), (Shape{2, 1, 4}));
    EXPECT_THAT(result.output.ToFloats(),
                Pointwise(FloatNear(1e-5F),
                          std::vector<float>{2, 3, 4, 5, 10, 11, 12, 13}));
  }

  std::optional<ConnectedServer> server_;
};

INSTANTIATE_TEST_SUITE_P(Backends, TutorialServiceTest,
                         ::testing::ValuesIn(Backends()),
                         [](const auto& param) { return param.param; });

TEST_P(TutorialServiceTest, DotProductToy) {
  ExpectMeans(ToyRequest(Normal({2, 1, 2}, 5)));
}

TEST_P(TutorialServiceTest, AdditiveToy) {
  client::AttendRequest request = ToyRequest(Normal({2, 1, 20}, 6));
  request.scoring = client::Additive{.w_q = Normal({20, 8}, 7),
                                     .w_k = Normal({2, 8}, 8),
                                     .w_v = Normal({8, 1}, 9)};
  ExpectMeans(request);
}

TEST_P(TutorialServiceTest, TwoByFourByEight) {
  client::AttendRequest request;
  request.query = Normal({2, 4, 8}, 10);
  request.key = Normal({2, 4, 8}, 11);
  request.value = Normal({2, 4, 8}, 12);
  request.return_weights = true;
  ASSERT_OK_AND_ASSIGN(const client::AttendResult result,
                       server_->client().Attend(request));
  EXPECT_EQ(result.output.shape(), (Shape{2, 4, 8}));
  ASSERT_TRUE(result.weights.has_value());
  ASSERT_EQ(result.weights->shape(), (Shape{2, 4, 4}));
  const std::vector<double> weights = result.weights->ToDoubles();
  EXPECT_THAT(weights, Each(Ge(0)));
  for (size_t row = 0; row < 8; ++row) {
    EXPECT_NEAR(weights[row * 4] + weights[row * 4 + 1] + weights[row * 4 + 2] +
                    weights[row * 4 + 3],
                1, 1e-6);
  }
}

}  // namespace
}  // namespace attention::test
