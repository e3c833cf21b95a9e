#include "tests/support/oracle_score.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace attention::test {
namespace {

template <typename T>
T ReadAs(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof(value));
  return value;
}

// IEEE 754 binary16: 1 sign bit, 5 of exponent (bias 15), 10 of fraction.
double HalfToDouble(uint16_t bits) {
  const double sign = (bits >> 15) != 0 ? -1 : 1;
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent < 31) return sign * std::ldexp(1024 + fraction, exponent - 25);
  return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                       : std::numeric_limits<double>::quiet_NaN();
}

double BrainToDouble(uint16_t bits) {
  const uint32_t widened = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &widened, sizeof(value));
  return value;
}

// A parameter's element (head, row, column), where a leading head extent and,
// for vectors, a trailing extent of 1 may be there or not.
double Matrix(const TensorView& m, int64_t head, int64_t row, int64_t column) {
  const bool per_head = m.rank() == 3;
  const std::byte* at = m.data + row * m.strides[per_head ? 1 : 0] +
                        column * m.strides[per_head ? 2 : 1];
  if (per_head) at += head * m.strides[0];
  return ReadElement(m.type, at);
}

double Vector(const TensorView& v, int64_t size, int64_t head,
              int64_t element) {
  const bool column = v.rank() == 2 && v.shape[0] == size && v.shape[1] == 1;
  const bool per_head = v.rank() == 3 || (v.rank() == 2 && !column);
  const std::byte* at = v.data + element * v.strides[per_head ? 1 : 0];
  if (per_head) at += head * v.strides[0];
  return ReadElement(v.type, at);
}

struct ScoreOf {
  int64_t head;
  const std::vector<double>& q;
  const std::vector<double>& k;

  Score operator()(const ScaledDotProduct& dot) const {
    const double width = static_cast<double>(q.size());
    const double scale = dot.scale ? *dot.scale : 1 / std::sqrt(width);
    Score score;
    for (size_t d = 0; d < q.size(); ++d) {
      score.value += q[d] * k[d];
      score.magnitude += std::abs(q[d] * k[d]);
    }
    return {scale * score.value, std::abs(scale) * score.magnitude};
  }

  Score operator()(const Additive& additive) const {
    const int64_t hidden = additive.w_q.shape.back();
    Score score;
    for (int64_t n = 0; n < hidden; ++n) {
      double sum = 0;
      for (size_t d = 0; d < q.size(); ++d) {
        sum += q[d] * Matrix(additive.w_q, head, static_cast<int64_t>(d), n);
      }
      for (size_t d = 0; d < k.size(); ++d) {
        sum += k[d] * Matrix(additive.w_k, head, static_cast<int64_t>(d), n);
      }
      const double factor = Vector(additive.w_v, hidden, head, n);
      score.value += factor * std::tanh(sum);
      score.magnitude += std::abs(factor);
    }
    return score;
  }

  Score operator()(const Gaussian& gaussian) const {
    double squares = 0;
    for (size_t d = 0; d < q.size(); ++d) {
      squares += (q[d] - k[d]) * (q[d] - k[d]);
    }
    const double score = squares / (2 * gaussian.sigma * gaussian.sigma);
    return {-score, score};
  }

  Score operator()(const Bilinear& bilinear) const {
    Score score;
    for (size_t d = 0; d < q.size(); ++d) {
      for (size_t e = 0; e < k.size(); ++e) {
        const double term = q[d] * k[e] *
                            Matrix(bilinear.m, head, static_cast<int64_t>(d),
                                   static_cast<int64_t>(e));
        score.value += term;
        score.magnitude += std::abs(term);
      }
    }
    return {bilinear.scale * score.value,
            std::abs(bilinear.scale) * score.magnitude};
  }
};

}  // namespace

double ReadElement(DataType type, const std::byte* address) {
  switch (type) {
    case DataType::kFloat32:
      return ReadAs<float>(address);
    case DataType::kFloat16:
      return HalfToDouble(ReadAs<uint16_t>(address));
    case DataType::kBFloat16:
      return BrainToDouble(ReadAs<uint16_t>(address));
    case DataType::kInt32:
      return ReadAs<int32_t>(address);
    case DataType::kInt64:
      return static_cast<double>(ReadAs<int64_t>(address));
    case DataType::kBool:
    case DataType::kUint8:
      return ReadAs<uint8_t>(address);
    default:
      return std::numeric_limits<double>::quiet_NaN();  // not an input's type
  }
}

double ReadBroadcast(const TensorView& view, int problem_rank, int64_t b,
                     int64_t h, int64_t i, int64_t x) {
  const int64_t four[] = {b, h, i, x};
  const int64_t three[] = {b, i, x};
  const int64_t two[] = {i, x};
  const int64_t* const index = problem_rank == 4   ? four
                               : problem_rank == 3 ? three
                                                   : two;
  const std::byte* at = view.data;
  for (int extent = 0; extent < view.rank(); ++extent) {
    if (view.shape[extent] == 1) continue;
    at += view.strides[extent] * index[problem_rank - view.rank() + extent];
  }
  return ReadElement(view.type, at);
}

Score ComputeScore(const Scoring& scoring, int64_t head,
                   const std::vector<double>& q, const std::vector<double>& k) {
  return std::visit(ScoreOf{head, q, k}, scoring);
}

}  // namespace attention::test
