// Every scoring function, rank and datatype over the wire, against what the
// definition gives for a tiny problem.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "tests/service/gated_server.h"
#include "tests/service/requests.h"
#include "tests/service/tiny_problem.h"
#include "tests/service/wire_client.h"

namespace attention::test {
namespace {

using ::testing::ElementsAre;

class ScoringTest : public testing::Test {
 protected:
  std::unique_ptr<server::Server> server_ = StartServer();
  WireClient client_{server_->address()};
};

double Scaled(const Vector& q, const Vector& k) {
  return Dot(q, k) / std::sqrt(2.0);
}

// The row vector q times a matrix.
Vector Times(const Vector& q, const Rows& matrix) {
  Vector product(matrix[0].size(), 0);
  for (size_t i = 0; i < q.size(); ++i) {
    for (size_t j = 0; j < product.size(); ++j) {
      product[j] += q[i] * matrix[i][j];
    }
  }
  return product;
}

TEST_F(ScoringTest, ScaledDotProductIsTheDefault) {
  ExpectAnswer(client_, TinyRequest(), Scores(Scaled));
}

TEST_F(ScoringTest, ScaledDotProductWithoutAScale) {
  v1::AttendRequest request = TinyRequest();
  request.mutable_scaled_dot_product();
  ExpectAnswer(client_, request, Scores(Scaled));
}

TEST_F(ScoringTest, AScaleOfItsOwnZeroIncluded) {
  for (const double scale : {0.75, -2.0, 0.0}) {
    v1::AttendRequest request = TinyRequest();
    request.mutable_scaled_dot_product()->set_scale(scale);
    ExpectAnswer(client_, request, Scores([=](const auto& q, const auto& k) {
                   return scale * Dot(q, k);
                 }));
  }
}

TEST_F(ScoringTest, Additive) {
  const Rows w_q = {{0.5, -1, 0.25}, {1, 0.5, -0.75}};
  const Rows w_k = {{-0.5, 0.25, 1}, {0.75, 1, -0.25}};
  const Vector w_v = {1.5, -2, 0.5};
  const Rows scores = Scores([&](const Vector& q, const Vector& k) {
    const Vector from_q = Times(q, w_q);
    const Vector from_k = Times(k, w_k);
    double score = 0;
    for (size_t i = 0; i < w_v.size(); ++i) {
      score += w_v[i] * std::tanh(from_q[i] + from_k[i]);
    }
    return score;
  });
  v1::AttendRequest request = TinyRequest();
  *request.mutable_additive()->mutable_w_q() = ToTensor(w_q);
  *request.mutable_additive()->mutable_w_k() = ToTensor(w_k);
  *request.mutable_additive()->mutable_w_v() = Floats({3}, w_v);
  ExpectAnswer(client_, request, scores);
  *request.mutable_additive()->mutable_w_v() = Floats({3, 1}, w_v);
  ExpectAnswer(client_, request, scores);
}

TEST_F(ScoringTest, GaussianWithAndWithoutASigma) {
  const auto scores = [](double sigma) {
    return Scores([=](const Vector& q, const Vector& k) {
      const double squares =
          std::pow(q[0] - k[0], 2) + std::pow(q[1] - k[1], 2);
      return -squares / (2 * sigma * sigma);
    });
  };
  v1::AttendRequest request = TinyRequest();
  request.mutable_gaussian();
  ExpectAnswer(client_, request, scores(1));
  request.mutable_gaussian()->set_sigma(0.5);
  ExpectAnswer(client_, request, scores(0.5));
}

TEST_F(ScoringTest, BilinearWithAndWithoutAScale) {
  const Rows m = {{1, -0.5}, {0.25, 2}};
  const auto scores = [&](double scale) {
    return Scores([&, scale](const Vector& q, const Vector& k) {
      return scale * Dot(Times(q, m), k);
    });
  };
  v1::AttendRequest request = TinyRequest();
  *request.mutable_bilinear()->mutable_m() = ToTensor(m);
  ExpectAnswer(client_, request, scores(1));
  request.mutable_bilinear()->set_scale(0.25);
  ExpectAnswer(client_, request, scores(0.25));
}

TEST_F(ScoringTest, EachHeadMayHaveItsOwnParameters) {
  // Two heads with matrices 1 and 3 times the identity.
  v1::AttendRequest request = TinyRequest(4, 1, 2, 1);
  *request.mutable_bilinear()->mutable_m() =
      Floats({2, 2, 2}, {1, 0, 0, 1, 3, 0, 0, 3});
  const auto both = client_.Attend(request);
  ASSERT_TRUE(both.ok()) << both.status();
  std::vector<double> separate;
  for (const double factor : {1.0, 3.0}) {
    v1::AttendRequest one = TinyRequest();
    *one.mutable_bilinear()->mutable_m() =
        Floats({2, 2}, {factor, 0, 0, factor});
    ExpectAnswer(client_, one, Scores([=](const auto& q, const auto& k) {
                   return factor * Dot(q, k);
                 }));
    const auto reply = client_.Attend(one);
    ASSERT_TRUE(reply.ok()) << reply.status();
    const std::vector<double> output = Values(reply->output());
    separate.insert(separate.end(), output.begin(), output.end());
  }
  EXPECT_EQ(Values(both->output()), separate);
}

TEST_F(ScoringTest, SoftcapBendsScores) {
  v1::AttendRequest request = TinyRequest();
  request.set_softcap(0.5);
  ExpectAnswer(client_, request, Scores([](const Vector& q, const Vector& k) {
                 return 0.5 * std::tanh(Scaled(q, k) / 0.5);
               }));
}

TEST_F(ScoringTest, RanksTwoToFour) {
  const auto shapes = [&](int rank) {
    const v1::AttendRequest request = TinyRequest(rank, 3, 2, 2);
    ExpectAnswer(client_, request, Scores(Scaled));
    return client_.Attend(request).value_or(v1::AttendResponse());
  };
  v1::AttendResponse reply = shapes(2);
  EXPECT_THAT(Shape(reply.output()), ElementsAre(2, 2));
  EXPECT_THAT(Shape(reply.weights()), ElementsAre(2, 3));
  EXPECT_THAT(Shape(reply.lse()), ElementsAre(2));
  reply = shapes(3);
  EXPECT_THAT(Shape(reply.output()), ElementsAre(3, 2, 2));
  EXPECT_THAT(Shape(reply.weights()), ElementsAre(3, 2, 3));
  EXPECT_THAT(Shape(reply.lse()), ElementsAre(3, 2));
  reply = shapes(4);
  EXPECT_THAT(Shape(reply.output()), ElementsAre(3, 2, 2, 2));
  EXPECT_THAT(Shape(reply.weights()), ElementsAre(3, 2, 2, 3));
  EXPECT_THAT(Shape(reply.lse()), ElementsAre(3, 2, 2));
}

TEST_F(ScoringTest, GroupedQueryHeadsReadTheirKeyHead) {
  v1::AttendRequest request = TinyRequest(4, 1, 4, 2);
  ExpectAnswer(client_, request, Scores(Scaled));
  // The second key head's values become 0: heads 2 and 3 read them.
  std::string& data =
      *request.mutable_key_value()->mutable_value()->mutable_data();
  std::fill(data.begin() + static_cast<int64_t>(data.size() / 2), data.end(),
            '\0');
  const auto reply = client_.Attend(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  const std::vector<double> output = Values(reply->output());
  ASSERT_EQ(output.size(), 16u);
  for (size_t i = 0; i < output.size(); ++i) {
    EXPECT_EQ(output[i] == 0, i >= 8) << "element " << i;
  }
}

TEST_F(ScoringTest, HalfPrecisionTypes) {
  // Inputs are exact in both: only the output is rounded.
  ExpectAnswer(client_, TinyRequest(v1::DATA_TYPE_FP16), Scores(Scaled),
               std::ldexp(1, -11) + 1e-6);
  ExpectAnswer(client_, TinyRequest(v1::DATA_TYPE_BF16), Scores(Scaled),
               std::ldexp(1, -8) + 1e-6);
}

TEST_F(ScoringTest, ParametersMayHaveTheQuerysType) {
  v1::AttendRequest request = TinyRequest(v1::DATA_TYPE_BF16);
  *request.mutable_bilinear()->mutable_m() =
      MakeTensor(v1::DATA_TYPE_BF16, {2, 2}, {1, -0.5, 0.25, 2});
  ExpectAnswer(client_, request, Scores([](const Vector& q, const Vector& k) {
                 return Dot(Times(q, {{1, -0.5}, {0.25, 2}}), k);
               }),
               std::ldexp(1, -8) + 1e-6);
}

}  // namespace
}  // namespace attention::test
