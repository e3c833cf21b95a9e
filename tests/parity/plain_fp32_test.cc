// What the tolerances leave room for, measured: plain attention in FP32, a
// chain of multiply-adds per score and output, is within them for finite
// numbers of every kind, also where the processor takes subnormal numbers for
// 0.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/random.h"
#include "tests/support/tolerance.h"
#include "tests/support/values.h"

#if defined(__SSE2__)
#include <pmmintrin.h>
#endif

namespace attention::test {
namespace {

using Floats = std::vector<float>;

// Takes subnormal numbers for 0 as long as it lives, where asked to and where
// this processor can be told to.
class FlushToZero {
 public:
#if defined(__SSE2__)
  explicit FlushToZero(bool flush) : before_(_mm_getcsr()) {
    if (flush) _mm_setcsr(before_ | 0x8040);
  }
  ~FlushToZero() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#else
  explicit FlushToZero(bool) {}
#endif
};

Floats ToFloats(const TensorView& view) {
  const std::vector<double> wide = Materialize(view).ToDoubles();
  return {wide.begin(), wide.end()};
}

float Dot(const float* a, const float* b, size_t width) {
  float sum = 0;
  for (size_t d = 0; d < width; ++d) sum += a[d] * b[d];
  return sum;
}

// Rows of `width` times a matrix.
Floats Project(const Floats& rows, size_t width, const Floats& matrix) {
  const size_t columns = matrix.size() / width;
  Floats projected(rows.size() / width * columns);
  for (size_t row = 0; row < rows.size() / width; ++row) {
    for (size_t d = 0; d < width; ++d) {
      for (size_t n = 0; n < columns; ++n) {
        projected[row * columns + n] +=
            rows[row * width + d] * matrix[d * columns + n];
      }
    }
  }
  return projected;
}

// Queries and keys made ready, and how a pair of their rows is scored.
struct PlainScores {
  Floats queries, keys;
  size_t width;
  float factor = 1;
  Floats w_v = {};
  bool gaussian = false;

  float Of(size_t query, size_t key) const {
    const float* const q = queries.data() + query * width;
    const float* const k = keys.data() + key * width;
    float sum = 0;
    if (gaussian) {
      for (size_t d = 0; d < width; ++d) sum += (q[d] - k[d]) * (q[d] - k[d]);
    } else if (w_v.empty()) {
      sum = Dot(q, k, width);
    } else {
      for (size_t n = 0; n < width; ++n) sum += w_v[n] * std::tanh(q[n] + k[n]);
    }
    return factor * sum;
  }
};

PlainScores ScoresOf(const AttentionProblem& problem) {
  PlainScores scores{.queries = ToFloats(problem.query),
                     .keys = ToFloats(problem.key_value[0].key),
                     .width = static_cast<size_t>(problem.query.shape[3])};
  const auto key_width = static_cast<size_t>(problem.key_value[0].key.shape[3]);
  if (const auto* additive = std::get_if<Additive>(&problem.scoring)) {
    scores.w_v = ToFloats(additive->w_v);
    scores.queries =
        Project(scores.queries, scores.width, ToFloats(additive->w_q));
    scores.keys = Project(scores.keys, key_width, ToFloats(additive->w_k));
    scores.width = scores.w_v.size();
  } else if (const auto* gaussian = std::get_if<Gaussian>(&problem.scoring)) {
    scores.gaussian = true;
    const double sigma = gaussian->sigma;
    scores.factor = static_cast<float>(-1 / (2 * sigma * sigma));
  } else if (const auto* bilinear = std::get_if<Bilinear>(&problem.scoring)) {
    scores.queries =
        Project(scores.queries, scores.width, ToFloats(bilinear->m));
    scores.width = key_width;
    scores.factor = static_cast<float>(bilinear->scale);
  } else {
    scores.factor = 1 / std::sqrt(static_cast<float>(scores.width));
  }
  return scores;
}

// As vectors of 16 lanes do it: exponentials close to 1, of which one sum after
// the other would be rounded in the same direction.
float SumInLanes(const Floats& numbers) {
  std::array<float, 16> lanes = {};
  for (size_t j = 0; j < numbers.size(); ++j) lanes[j % 16] += numbers[j];
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) {
      lanes[lane] += lanes[lane + half];
    }
  }
  return lanes[0];
}

// One row after the other, without masks.
class PlainAttention {
 public:
  explicit PlainAttention(const AttentionProblem& problem)
      : problem_(problem),
        scores_(ScoresOf(problem)),
        values_(ToFloats(problem.key_value[0].value)) {}

  Results Run() {
    const Shape& query = problem_.query.shape;
    const Shape& value = problem_.key_value[0].value.shape;
    const auto rows = static_cast<size_t>(query[0] * query[1] * query[2]);
    for (size_t row = 0; row < rows; ++row) {
      const size_t heads = rows / static_cast<size_t>(query[2]);
      const size_t group = heads / static_cast<size_t>(value[0] * value[1]);
      AddRow(row, row / static_cast<size_t>(query[2]) / group);
    }
    const Shape out = {query[0], query[1], query[2], value[3]};
    Results results;
    results.output = Tensor::FromFloats(out, output_);
    if (problem_.wanted.weights) {
      results.weights = Tensor::FromFloats(
          {query[0], query[1], query[2], value[2]}, weights_);
    }
    results.lse = Tensor::FromFloats({query[0], query[1], query[2]}, lse_);
    return results;
  }

 private:
  void AddRow(size_t row, size_t head) {
    const auto keys = static_cast<size_t>(problem_.key_value[0].key.shape[2]);
    const auto width =
        static_cast<size_t>(problem_.key_value[0].value.shape[3]);
    Floats weights(keys);
    for (size_t j = 0; j < keys; ++j) {
      weights[j] = scores_.Of(row, head * keys + j);
    }
    const float max = *std::max_element(weights.begin(), weights.end());
    for (float& weight : weights) weight = std::exp(weight - max);
    const float sum = SumInLanes(weights);
    Floats output(width);
    for (size_t j = 0; j < keys; ++j) {
      weights[j] /= sum;
      for (size_t x = 0; x < width; ++x) {
        output[x] += weights[j] * values_[(head * keys + j) * width + x];
      }
    }
    output_.insert(output_.end(), output.begin(), output.end());
    weights_.insert(weights_.end(), weights.begin(), weights.end());
    lse_.push_back(max + std::log(sum));
  }

  const AttentionProblem& problem_;
  const PlainScores scores_;
  const Floats values_;
  Floats output_, weights_, lse_;
};

// Parameter: values, scoring, whether decode, whether subnormals are 0.
using PlainFp32Test =
    ::testing::TestWithParam<std::tuple<Values, ScoringKind, bool, bool>>;

TEST_P(PlainFp32Test, IsWithinTheTolerances) {
  const auto& [values, scoring, decode, flush] = GetParam();
  const OwnedProblem owned =
      MakeProblemOf(values, scoring, decode, DataType::kFloat32);
  Results results;
  {
    const FlushToZero mode(flush);
    results = PlainAttention(owned.problem).Run();
  }
  EXPECT_TRUE(Matches(owned.problem, results));
}

std::string NameOfPlainFp32Test(
    const ::testing::TestParamInfo<PlainFp32Test::ParamType>& test) {
  static constexpr const char* kScorings[] = {"dot_product", "additive",
                                              "gaussian", "bilinear"};
  const auto& [values, scoring, decode, flush] = test.param;
  return absl::StrCat(values.name, "_", kScorings[static_cast<int>(scoring)],
                      decode ? "_decode" : "_prefill",
                      flush ? "_flushing" : "");
}

INSTANTIATE_TEST_SUITE_P(
    All, PlainFp32Test,
    ::testing::Combine(::testing::ValuesIn(AllValues()),
                       ::testing::Values(ScoringKind::kDotProduct,
                                         ScoringKind::kAdditive,
                                         ScoringKind::kGaussian,
                                         ScoringKind::kBilinear),
                       ::testing::Bool(), ::testing::Bool()),
    NameOfPlainFp32Test);

}  // namespace
}  // namespace attention::test
