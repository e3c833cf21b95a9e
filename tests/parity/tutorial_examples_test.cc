// The examples that attention is taught with, and what they print: from a
// server, on every backend by its name.

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

// (2, 4, 4).
Tensor TwoIdentities() {
  std::vector<float> elements(32);
  for (size_t n = 0; n < 8; ++n) elements[n * 4 + n % 4] = 1;
  return Tensor::FromFloats({2, 4, 4}, elements);
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

  // The softmax of scores (2, 2, 4): keys that are rows of an identity matrix
  // leave the queries as they are.
  void ExpectMaskedSoftmax(const Tensor& valid_lens,
                           const std::vector<int>& lengths) {
    client::AttendRequest request;
    request.query = Normal({2, 2, 4}, 1);
    request.key = request.value = TwoIdentities();
    request.scoring = client::ScaledDotProduct{.scale = 1};
    request.valid_lens = valid_lens;
    request.return_weights = true;
    ASSERT_OK_AND_ASSIGN(const client::AttendResult result,
                         server_->client().Attend(request));
    ASSERT_TRUE(result.weights.has_value());
    ExpectMaskedRows(*result.weights, lengths);
  }

  std::optional<ConnectedServer> server_;
};

INSTANTIATE_TEST_SUITE_P(Backends, TutorialServiceTest,
                         ::testing::ValuesIn(Backends()),
                         [](const auto& param) { return param.param; });

TEST_P(TutorialServiceTest, MaskedSoftmaxWithOneLengthPerBatchEntry) {
  ExpectMaskedSoftmax(Tensor::FromInts({2}, {2, 3}), {2, 2, 3, 3});
}

TEST_P(TutorialServiceTest, MaskedSoftmaxWithOneLengthPerRow) {
  ExpectMaskedSoftmax(Tensor::FromInts({2, 2}, {1, 3, 2, 4}), {1, 3, 2, 4});
}

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
