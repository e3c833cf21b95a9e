#include "tests/support/tolerance.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace attention::test {
namespace {

constexpr double kEps32 = 0x1p-24;
constexpr double kSmallestNormal32 = 0x1p-126;
constexpr double kSmallest32 = 0x1p-149;

double SmallestNumber(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return 0x1p-24;
    case DataType::kBFloat16:
      return 0x1p-133;
    default:
      return kSmallest32;
  }
}

// How far out an element is, in tolerances; infinite where NaN or an infinity
// is not what was expected.
double Excess(double actual, double expected, double tolerance) {
  if (std::isnan(expected) && std::isnan(actual)) return 0;
  if (actual == expected) return 0;
  if (!std::isfinite(actual) || !std::isfinite(expected)) {
    return std::numeric_limits<double>::infinity();
  }
  return std::abs(actual - expected) / tolerance;
}

::testing::AssertionResult HasShape(const std::string& name,
                                    const Tensor& tensor, DataType type,
                                    Shape four, int rank) {
  if (rank == 3) four.erase(four.begin() + 1);
  if (rank == 2) four.erase(four.begin(), four.begin() + 2);
  if (tensor.type() == type && tensor.shape() == four) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << name << " is " << Name(tensor.type()) << " "
         << ShapeToString(tensor.shape()) << ", expected " << Name(type) << " "
         << ShapeToString(four);
}

// Weights before dropout sum to 1 in every row in which a key takes part.
::testing::AssertionResult RowsSumToOne(const Expected& expected,
                                        absl::Span<const double> weights) {
  const size_t keys = expected.key_length;
  for (size_t row = 0; row < expected.lse.size(); ++row) {
    double sum = 0;
    double wanted = 0;
    for (size_t j = 0; j < keys; ++j) {
      sum += weights[row * keys + j];
      wanted += expected.weights[row * keys + j];
    }
    if (!(std::abs(sum - wanted) <= 1e-6) && !std::isnan(wanted)) {
      return ::testing::AssertionFailure()
             << "weights of row " << row << " sum to " << sum << ", expected "
             << wanted;
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace

double UnitRoundoff(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return 0x1p-11;
    case DataType::kBFloat16:
      return 0x1p-8;
    default:
      return kEps32;
  }
}

std::vector<double> OutputTolerances(const Expected& expected, DataType type) {
  const double u_out = UnitRoundoff(type);
  const double u_in = type == DataType::kFloat32 ? 0 : u_out;
  std::vector<double> tolerances(expected.output.size());
  for (size_t n = 0; n < tolerances.size(); ++n) {
    const double o = std::abs(expected.output[n]);
    const double weighted = expected.weighted[n];
    const double kappa = expected.kappa[n / expected.value_width];
    const double underflow =
        SmallestNumber(type) + kSmallestNormal32 * expected.reach[n] +
        kSmallest32 * static_cast<double>(expected.key_length);
    tolerances[n] =
        underflow + kToleranceFactor * (u_out * o + u_in * weighted +
                                        kEps32 * kappa * (weighted + o));
  }
  return tolerances;
}

std::vector<double> WeightTolerances(const Expected& expected) {
  std::vector<double> tolerances(expected.weights.size());
  for (size_t n = 0; n < tolerances.size(); ++n) {
    const double weight = expected.weights[n];
    if (weight == 0) continue;  // exactly 0: dropped, or takes no part
    const double kappa = expected.kappa[n / expected.key_length];
    tolerances[n] = kSmallestNormal32 +
                    kToleranceFactor * kEps32 * weight * (1 + 2 * kappa);
  }
  return tolerances;
}

std::vector<double> LseTolerances(const Expected& expected) {
  std::vector<double> tolerances(expected.lse.size());
  for (size_t n = 0; n < tolerances.size(); ++n) {
    tolerances[n] = kToleranceFactor * kEps32 *
                    (1 + expected.kappa[n] + std::abs(expected.lse[n]));
  }
  return tolerances;
}

::testing::AssertionResult IsWithin(const std::string& name,
                                    absl::Span<const double> actual,
                                    absl::Span<const double> expected,
                                    absl::Span<const double> tolerances) {
  if (actual.size() != expected.size()) {
    return ::testing::AssertionFailure()
           << name << " has " << actual.size() << " elements, expected "
           << expected.size();
  }
  size_t worst = 0;
  double worst_excess = 0;
  for (size_t n = 0; n < actual.size(); ++n) {
    const double excess = Excess(actual[n], expected[n], tolerances[n]);
    if (!(excess <= worst_excess)) {
      worst = n;
      worst_excess = excess;
    }
  }
  if (worst_excess <= 1) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << name << "[" << worst << "] of " << actual.size() << " is "
         << absl::StrCat(actual[worst]) << ", expected "
         << absl::StrCat(expected[worst]) << " within " << tolerances[worst]
         << " (" << worst_excess << " times that)";
}

::testing::AssertionResult Matches(const AttentionProblem& problem,
                                   const Expected& expected,
                                   const Results& results) {
  const DataType type = problem.query.type;
  const int rank = problem.query.rank();
  const Shape rows = {expected.batch, expected.query_heads,
                      expected.query_length};
  const auto widened = [&rows](int64_t extent) {
    return Shape{rows[0], rows[1], rows[2], extent};
  };
  auto check = HasShape("output", results.output, type,
                        widened(expected.value_width), rank);
  if (!check) return check;
  check = IsWithin("output", results.output.ToDoubles(), expected.output,
                   OutputTolerances(expected, type));
  if (!check) return check;
  if (results.weights.has_value() != problem.wanted.weights ||
      results.lse.has_value() != problem.wanted.lse) {
    return ::testing::AssertionFailure() << "not the results asked for";
  }
  if (results.weights) {
    const std::vector<double> weights = results.weights->ToDoubles();
    check = HasShape("weights", *results.weights, DataType::kFloat32,
                     widened(expected.key_length), rank);
    if (!check) return check;
    check = IsWithin("weights", weights, expected.weights,
                     WeightTolerances(expected));
    if (!check) return check;
    if (!problem.wanted.weights_after_dropout) {
      check = RowsSumToOne(expected, weights);
      if (!check) return check;
    }
  }
  if (results.lse) {
    check = HasShape("lse", *results.lse, DataType::kFloat32, rows, rank);
    if (!check) return check;
    check = IsWithin("lse", results.lse->ToDoubles(), expected.lse,
                     LseTolerances(expected));
  }
  return check;
}

::testing::AssertionResult Matches(const AttentionProblem& problem,
                                   const Results& results) {
  return Matches(problem, ComputeExpected(problem), results);
}

}  // namespace attention::test
