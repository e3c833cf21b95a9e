// Every mask and option over the wire, against what the definition gives for a
// tiny problem: two queries, three keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "tests/service/gated_server.h"
#include "tests/service/requests.h"
#include "tests/service/tiny_problem.h"
#include "tests/service/wire_client.h"

namespace attention::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr double kMasked = -std::numeric_limits<double>::infinity();

class OptionsTest : public testing::Test {
 protected:
  // Fails unless exactly the keys marked with 1 take part.
  void ExpectKeys(const v1::AttendRequest& request, const Rows& takes_part) {
    Rows scores = Scores([](const Vector& q, const Vector& k) {
      return Dot(q, k) / std::sqrt(2.0);
    });
    for (size_t i = 0; i < scores.size(); ++i) {
      for (size_t j = 0; j < scores[i].size(); ++j) {
        if (takes_part[i][j] == 0) scores[i][j] = kMasked;
      }
    }
    ExpectAnswer(client_, request, scores);
  }

  std::unique_ptr<server::Server> server_ = StartServer();
  WireClient client_{server_->address()};
};

TEST_F(OptionsTest, ValidLensPerBatchEntry) {
  v1::AttendRequest request = TinyRequest();
  *request.mutable_valid_lens() = MakeTensor(v1::DATA_TYPE_INT32, {1}, {2});
  ExpectKeys(request, {{1, 1, 0}, {1, 1, 0}});
}

TEST_F(OptionsTest, ValidLensPerRow) {
  v1::AttendRequest request = TinyRequest();
  *request.mutable_valid_lens() =
      MakeTensor(v1::DATA_TYPE_INT64, {1, 2}, {3, 1});
  ExpectKeys(request, {{1, 1, 1}, {1, 0, 0}});
}

TEST_F(OptionsTest, AttendMaskAsBoolAndAsBytes) {
  for (const auto type : {v1::DATA_TYPE_BOOL, v1::DATA_TYPE_UINT8}) {
    v1::AttendRequest request = TinyRequest();
    *request.mutable_attend_mask() =
        MakeTensor(type, {2, 3}, {1, 0, 1, 0, 1, 1});
    ExpectKeys(request, {{1, 0, 1}, {0, 1, 1}});
  }
}

TEST_F(OptionsTest, AttendMaskBroadcasts) {
  v1::AttendRequest request = TinyRequest();
  *request.mutable_attend_mask() =
      MakeTensor(v1::DATA_TYPE_BOOL, {3}, {1, 0, 1});
  ExpectKeys(request, {{1, 0, 1}, {1, 0, 1}});
}

TEST_F(OptionsTest, BiasIsAddedAndMasks) {
  const Rows bias = {{0.5, kMasked, -1}, {2, 0, 0.25}};
  v1::AttendRequest request = TinyRequest();
  *request.mutable_bias() = ToTensor(bias);
  Rows scores = Scores([](const Vector& q, const Vector& k) {
    return Dot(q, k) / std::sqrt(2.0);
  });
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < scores[i].size(); ++j) scores[i][j] += bias[i][j];
  }
  ExpectAnswer(client_, request, scores);
}

TEST_F(OptionsTest, CausalNoneIsLikeNoRule) {
  v1::AttendRequest request = TinyRequest();
  request.set_causal(v1::CAUSAL_NONE);
  ExpectKeys(request, {{1, 1, 1}, {1, 1, 1}});
}

TEST_F(OptionsTest, CausalTopLeft) {
  v1::AttendRequest request = TinyRequest();
  request.set_causal(v1::CAUSAL_TOP_LEFT);
  ExpectKeys(request, {{1, 0, 0}, {1, 1, 0}});
}

TEST_F(OptionsTest, CausalBottomRight) {
  v1::AttendRequest request = TinyRequest();
  request.set_causal(v1::CAUSAL_BOTTOM_RIGHT);
  ExpectKeys(request, {{1, 1, 0}, {1, 1, 1}});
}

TEST_F(OptionsTest, OffsetsMoveQueriesAndKeys) {
  v1::AttendRequest request = TinyRequest();
  request.set_causal(v1::CAUSAL_TOP_LEFT);
  request.set_query_offset(1);
  ExpectKeys(request, {{1, 1, 0}, {1, 1, 1}});
  request.set_query_offset(4);
  request.set_key_offset(3);
  ExpectKeys(request, {{1, 1, 0}, {1, 1, 1}});
}

TEST_F(OptionsTest, WindowToTheLeftAndToTheRight) {
  v1::AttendRequest request = TinyRequest();
  request.set_window_left(0);
  ExpectKeys(request, {{1, 1, 1}, {0, 1, 1}});
  request.clear_window_left();
  request.set_window_right(0);
  ExpectKeys(request, {{1, 0, 0}, {1, 1, 0}});
  request.set_window_left(0);
  request.set_query_offset(1);
  ExpectKeys(request, {{0, 1, 0}, {0, 0, 1}});
}

TEST_F(OptionsTest, AllMasksHoldAtOnce) {
  v1::AttendRequest request = TinyRequest();
  *request.mutable_valid_lens() = MakeTensor(v1::DATA_TYPE_INT32, {1}, {2});
  *request.mutable_attend_mask() =
      MakeTensor(v1::DATA_TYPE_BOOL, {2, 1}, {1, 0});
  *request.mutable_bias() = ToTensor({{kMasked, 0, 0}});
  ExpectKeys(request, {{0, 1, 0}, {0, 0, 0}});
}

TEST_F(OptionsTest, EmptyRowsAreZeroOrUniform) {
  v1::AttendRequest request = TinyRequest();
  *request.mutable_valid_lens() = MakeTensor(v1::DATA_TYPE_INT32, {1}, {0});
  ExpectKeys(request, {{0, 0, 0}, {0, 0, 0}});
  request.set_empty_rows(v1::EMPTY_ROWS_ZERO);
  ExpectKeys(request, {{0, 0, 0}, {0, 0, 0}});
  request.set_empty_rows(v1::EMPTY_ROWS_UNIFORM);
  const auto reply = client_.Attend(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(Values(reply->weights()),
              Each(testing::DoubleNear(1.0 / 3, 1e-6)));
  const auto mean = [](double sum) {
    return testing::DoubleNear(sum / 3, 1e-6);
  };
  EXPECT_THAT(Values(reply->output()),
              ElementsAre(mean(1 + 3 - 4), mean(-2 + 0.5 + 8), mean(1 + 3 - 4),
                          mean(-2 + 0.5 + 8)));
  EXPECT_THAT(Values(reply->lse()), Each(kMasked));
}

// 8 x 32 weights of 1 / 32 over values of 1, of which dropout takes some.
v1::AttendRequest DropoutRequest(uint64_t seed) {
  v1::AttendRequest request;
  *request.mutable_query() = Filled(v1::DATA_TYPE_FP32, {8, 1}, 1);
  v1::KeyValueTensors& key_value = *request.mutable_key_value();
  *key_value.mutable_key() = Filled(v1::DATA_TYPE_FP32, {32, 1}, 1);
  *key_value.mutable_value() = Filled(v1::DATA_TYPE_FP32, {32, 1}, 1);
  request.set_training(true);
  request.set_dropout_p(0.5);
  request.set_seed(seed);
  request.set_weights_after_dropout(true);
  request.set_return_weights(true);
  return request;
}

TEST_F(OptionsTest, DropoutDropsWeightsAndScalesTheOthers) {
  const auto reply = client_.Attend(DropoutRequest(7));
  ASSERT_TRUE(reply.ok()) << reply.status();
  const std::vector<double> weights = Values(reply->weights());
  const std::vector<double> output = Values(reply->output());
  ASSERT_EQ(weights.size(), 8u * 32);
  int dropped = 0;
  for (size_t row = 0; row < 8; ++row) {
    double sum = 0;
    for (size_t key = 0; key < 32; ++key) {
      const double weight = weights[row * 32 + key];
      EXPECT_TRUE(weight == 0 || weight == 1.0 / 16) << weight;
      if (weight == 0) ++dropped;
      sum += weight;
    }
    EXPECT_NEAR(output[row], sum, 1e-6) << "row " << row;
  }
  // 256 weights, each dropped with probability 1/2: six standard deviations.
  EXPECT_GT(dropped, 80);
  EXPECT_LT(dropped, 176);
}

TEST_F(OptionsTest, DropoutFollowsFromTheSeed) {
  const auto output = [this](uint64_t seed) {
    const auto reply = client_.Attend(DropoutRequest(seed));
    return reply.ok() ? reply->output().data() : reply.status().ToString();
  };
  EXPECT_EQ(output(7), output(7));
  EXPECT_NE(output(7), output(8));
  EXPECT_NE(output(7), output(7 + (uint64_t{1} << 32))) << "the high word too";
}

TEST_F(OptionsTest, WeightsAreThoseBeforeDropoutUnlessAskedFor) {
  v1::AttendRequest request = DropoutRequest(7);
  request.set_weights_after_dropout(false);
  const auto reply = client_.Attend(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(Values(reply->weights()), Each(1.0 / 32));
  EXPECT_EQ(reply->output().data(),
            client_.Attend(DropoutRequest(7))->output().data());
}

TEST_F(OptionsTest, NothingIsDroppedWithoutTraining) {
  v1::AttendRequest request = DropoutRequest(7);
  for (const bool absent : {false, true}) {
    request.set_training(false);
    if (absent) request.clear_training();
    const auto reply = client_.Attend(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_THAT(Values(reply->output()), Each(1.0));
  }
}

TEST_F(OptionsTest, AlibiSlopesTakeOffTheDistance) {
  v1::AttendRequest request = TinyRequest();
  *request.mutable_alibi_slopes() = MakeTensor(v1::DATA_TYPE_FP32, {1}, {0.25});
  Rows scores = Scores([](const Vector& q, const Vector& k) {
    return Dot(q, k) / std::sqrt(2.0);
  });
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) scores[i][j] -= 0.25 * std::abs(i - j);
  }
  ExpectAnswer(client_, request, scores);
}

TEST_F(OptionsTest, SinksTakeTheirShareOfEveryRow) {
  v1::AttendRequest request = TinyRequest();
  *request.mutable_sinks() = MakeTensor(v1::DATA_TYPE_FP32, {1}, {0.5});
  const auto reply = client_.Attend(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  const auto weights = Values(reply->weights());
  const auto lse = Values(reply->lse());
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(weights[3 * i] + weights[3 * i + 1] + weights[3 * i + 2] +
                    std::exp(0.5 - lse[i]),
                1, 1e-6);
  }
}

TEST_F(OptionsTest, QueryOffsetsMoveTheirBatchEntry) {
  v1::AttendRequest request = TinyRequest();
  request.set_causal(v1::CAUSAL_TOP_LEFT);
  *request.mutable_query_offsets() = MakeTensor(v1::DATA_TYPE_INT64, {1}, {1});
  ExpectKeys(request, {{1, 1, 0}, {1, 1, 1}});
}

TEST_F(OptionsTest, WeightsAndLseComeOnlyWhenAskedFor) {
  v1::AttendRequest request = TinyRequest();
  request.clear_return_weights();
  request.set_return_lse(false);
  const auto reply = client_.Attend(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_FALSE(reply->has_weights());
  EXPECT_FALSE(reply->has_lse());
  request.set_return_lse(true);
  const auto with_lse = client_.Attend(request);
  ASSERT_TRUE(with_lse.ok()) << with_lse.status();
  EXPECT_FALSE(with_lse->has_weights());
  EXPECT_TRUE(with_lse->has_lse());
}

TEST_F(OptionsTest, TheReplySaysWhoAnswered) {
  const auto reply = client_.Attend(TinyRequest());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->id(), "tiny");
  EXPECT_NE(reply->backend(), "");
  EXPECT_NE(reply->kernel(), "");
  EXPECT_GT(reply->compute_ns(), 0u);
}

TEST_F(OptionsTest, ExtentsOfZeroGiveEmptyResults) {
  v1::AttendRequest no_queries = TinyRequest();
  *no_queries.mutable_query() = MakeTensor(v1::DATA_TYPE_FP32, {0, 2}, {});
  const auto empty = client_.Attend(no_queries);
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_THAT(Shape(empty->output()), ElementsAre(0, 2));
  EXPECT_THAT(Shape(empty->weights()), ElementsAre(0, 3));

  v1::AttendRequest no_keys = TinyRequest();
  *no_keys.mutable_key_value()->mutable_key() =
      MakeTensor(v1::DATA_TYPE_FP32, {0, 2}, {});
  *no_keys.mutable_key_value()->mutable_value() =
      MakeTensor(v1::DATA_TYPE_FP32, {0, 3}, {});
  const auto zeros = client_.Attend(no_keys);
  ASSERT_TRUE(zeros.ok()) << zeros.status();
  EXPECT_THAT(Shape(zeros->output()), ElementsAre(2, 3));
  EXPECT_THAT(Values(zeros->output()), Each(0.0));
  EXPECT_THAT(Values(zeros->lse()), ElementsAre(kMasked, kMasked));
}

TEST_F(OptionsTest, KeysOfInt8AndFp8) {
  for (const auto type : {v1::DATA_TYPE_INT8, v1::DATA_TYPE_FP8}) {
    ExpectKeys(TinyQuantizedRequest(type), {{1, 1, 1}, {1, 1, 1}});
  }
}

// Of any floating-point type, under queries of another.
TEST_F(OptionsTest, KeysOfAnotherTypeThanQueries) {
  for (const auto type : {v1::DATA_TYPE_FP16, v1::DATA_TYPE_BF16}) {
    v1::AttendRequest request = TinyRequest();
    *request.mutable_key_value() = TinyRequest(type).key_value();
    ExpectKeys(request, {{1, 1, 1}, {1, 1, 1}});
  }
}

TEST_F(OptionsTest, ScalesThatAreWrongAreNamed) {
  v1::AttendRequest request = TinyQuantizedRequest(v1::DATA_TYPE_INT8);
  request.mutable_key_value()->clear_value_scale();
  EXPECT_EQ(client_.Attend(request).status().message(),
            "value_scale: missing (each row of INT8 has one)");
  *request.mutable_key_value()->mutable_value_scale() =
      Floats({3}, {1, -0.5, 1});
  EXPECT_EQ(
      client_.Attend(request).status().message(),
      "value_scale: -0.5 for row 1 of head 0 (expected a finite number, 0 "
      "or more)");
  request = TinyRequest();
  *request.mutable_key_value()->mutable_key_scale() = Floats({3}, {1, 1, 1});
  EXPECT_EQ(client_.Attend(request).status().message(),
            "key_scale: was given beside FP32, which has none (leave it out)");
}

// Two entries without padding: the first row against two keys, the second
// against the third.
TEST_F(OptionsTest, PackedBatch) {
  v1::AttendRequest request = TinyRequest();
  const auto pack = [](v1::Tensor& tensor) {
    const int64_t width = tensor.shape(1);
    tensor.set_shape(1, 1);
    tensor.add_shape(width);
  };
  pack(*request.mutable_query());
  pack(*request.mutable_key_value()->mutable_key());
  pack(*request.mutable_key_value()->mutable_value());
  *request.mutable_query_starts() =
      MakeTensor(v1::DATA_TYPE_INT32, {3}, {0, 1, 2});
  *request.mutable_key_starts() =
      MakeTensor(v1::DATA_TYPE_INT64, {3}, {0, 2, 3});
  v1::AttendRequest plain = TinyRequest();
  *plain.mutable_attend_mask() =
      MakeTensor(v1::DATA_TYPE_BOOL, {2, 3}, {1, 1, 0, 0, 0, 1});
  const auto packed = client_.Attend(request);
  const auto expected = client_.Attend(plain);
  ASSERT_TRUE(packed.ok()) << packed.status();
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_THAT(packed->output().shape(),
              ElementsAre(2, 1, expected->output().shape(1)));
  EXPECT_EQ(packed->output().data(), expected->output().data());
}

}  // namespace
}  // namespace attention::test
