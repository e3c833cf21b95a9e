#include "tests/service/tiny_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/service/requests.h"
#include "tests/support/special_numbers.h"

namespace attention::test {
namespace {

std::vector<double> Flat(const Rows& rows, int64_t times = 1) {
  std::vector<double> flat;
  for (int64_t i = 0; i < times; ++i) {
    for (const auto& row : rows) {
      flat.insert(flat.end(), row.begin(), row.end());
    }
  }
  return flat;
}

v1::Tensor Repeated(v1::DataType type, std::vector<int64_t> leading,
                    const Rows& rows) {
  const int64_t times = std::accumulate(leading.begin(), leading.end(),
                                        int64_t{1}, std::multiplies<>());
  leading.push_back(static_cast<int64_t>(rows.size()));
  leading.push_back(static_cast<int64_t>(rows[0].size()));
  return MakeTensor(type, leading, Flat(rows, times));
}

v1::AttendRequest Request(v1::DataType type,
                          const std::vector<int64_t>& query_leading,
                          const std::vector<int64_t>& kv_leading) {
  v1::AttendRequest request;
  request.set_id("tiny");
  request.set_return_weights(true);
  request.set_return_lse(true);
  *request.mutable_query() = Repeated(type, query_leading, TinyQueries());
  v1::KeyValueTensors& key_value = *request.mutable_key_value();
  *key_value.mutable_key() = Repeated(type, kv_leading, TinyKeys());
  *key_value.mutable_value() = Repeated(type, kv_leading, TinyValues());
  return request;
}

// What one row of scores gives, by the definition.
struct RowAnswer {
  std::vector<double> weights;
  std::vector<double> output;
  double lse = -kInfinity;
};

RowAnswer AnswerOf(const std::vector<double>& scores) {
  const Rows values = TinyValues();
  RowAnswer answer{std::vector<double>(scores.size(), 0),
                   std::vector<double>(values[0].size(), 0)};
  double sum = 0;
  for (const double score : scores) sum += std::exp(score);
  if (sum == 0) return answer;
  answer.lse = std::log(sum);
  for (size_t j = 0; j < scores.size(); ++j) {
    answer.weights[j] = std::exp(scores[j]) / sum;
    for (size_t d = 0; d < answer.output.size(); ++d) {
      answer.output[d] += answer.weights[j] * values[j][d];
    }
  }
  return answer;
}

// `actual` holds `expected` once per head and batch entry.
void ExpectRepeated(const char* name, const std::vector<double>& actual,
                    const std::vector<double>& expected, double tolerance) {
  ASSERT_FALSE(actual.empty()) << name;
  ASSERT_EQ(actual.size() % expected.size(), 0u) << name;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double wanted = expected[i % expected.size()];
    if (std::isinf(wanted)) {
      EXPECT_EQ(actual[i], wanted) << name << " element " << i;
    } else {
      EXPECT_NEAR(actual[i], wanted,
                  tolerance * std::max(1.0, std::abs(wanted)))
          << name << " element " << i;
    }
  }
}

}  // namespace

Rows TinyQueries() { return {{1, -0.5}, {0.25, 2}}; }
Rows TinyKeys() { return {{0.5, 1}, {-1, 0.25}, {2, -0.75}}; }
Rows TinyValues() { return {{1, -2}, {3, 0.5}, {-4, 8}}; }

v1::AttendRequest TinyRequest(v1::DataType type) {
  return Request(type, {}, {});
}

v1::AttendRequest TinyQuantizedRequest(v1::DataType type) {
  v1::AttendRequest request = TinyRequest();
  const auto quantize = [type](Rows rows, const std::vector<double>& scales) {
    for (size_t j = 0; j < rows.size(); ++j) {
      for (double& element : rows[j]) element /= scales[j];
    }
    return Repeated(type, {}, rows);
  };
  const std::vector<double> key_scales = {0.25, 0.125, 0.25};
  const std::vector<double> value_scales = {0.5, 0.25, 1};
  v1::KeyValueTensors& key_value = *request.mutable_key_value();
  *key_value.mutable_key() = quantize(TinyKeys(), key_scales);
  *key_value.mutable_value() = quantize(TinyValues(), value_scales);
  *key_value.mutable_key_scale() = Floats({3}, key_scales);
  *key_value.mutable_value_scale() = Floats({3}, value_scales);
  return request;
}

v1::AttendRequest TinyRequest(int rank, int batch, int query_heads,
                              int kv_heads) {
  switch (rank) {
    case 2:
      return TinyRequest();
    case 3:
      return Request(v1::DATA_TYPE_FP32, {batch}, {batch});
    default:
      return Request(v1::DATA_TYPE_FP32, {batch, query_heads},
                     {batch, kv_heads});
  }
}

v1::Tensor ToTensor(const Rows& rows) {
  return Repeated(v1::DATA_TYPE_FP32, {}, rows);
}

Rows Scores(const std::function<double(const Vector&, const Vector&)>& score) {
  Rows scores;
  for (const Vector& query : TinyQueries()) {
    auto& row = scores.emplace_back();
    for (const Vector& key : TinyKeys()) row.push_back(score(query, key));
  }
  return scores;
}

double Dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

void ExpectAnswer(WireClient& client, const v1::AttendRequest& request,
                  const Rows& scores, double tolerance) {
  const auto reply = client.Attend(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  Rows output;
  Rows weights;
  std::vector<double> lse;
  for (const auto& row : scores) {
    const RowAnswer answer = AnswerOf(row);
    output.push_back(answer.output);
    weights.push_back(answer.weights);
    lse.push_back(answer.lse);
  }
  EXPECT_EQ(reply->output().datatype(), request.query().datatype());
  EXPECT_EQ(reply->weights().datatype(), v1::DATA_TYPE_FP32);
  EXPECT_EQ(reply->lse().datatype(), v1::DATA_TYPE_FP32);
  ExpectRepeated("output", Values(reply->output()), Flat(output), tolerance);
  ExpectRepeated("weights", Values(reply->weights()), Flat(weights), 1e-6);
  ExpectRepeated("lse", Values(reply->lse()), lse, 1e-6);
}

}  // namespace attention::test
