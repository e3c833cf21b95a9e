#include "tests/support/tolerance.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/support/more_results.h"
#include "tests/support/oracle_score.h"
#include "tests/support/special_numbers.h"

namespace attention::test {
namespace {

constexpr double kEps32 = 0x1p-24;

// Below it a result may be 0, or its rounding is no share of it any more.
double SmallestNumber(DataType type) {
  return type == DataType::kFloat16 ? 0x1p-24 : kVanishing;
}

// Below it a weight may be 0. Tensor cores multiply FP16 values by FP16
// weights, which the kernels take 2^15 times as large (cuda::kHalfProbability):
// half of FP16's smallest number is then 2^-40.
double SmallestWeight(DataType type) {
  return type == DataType::kFloat16 ? 0x1p-40 : kVanishing;
}

// What is close to it may be rounded to infinity.
double LargestNumber(DataType type) {
  return type == DataType::kFloat16 ? 65504.0 : kOverflowing;
}

// Weights' relative error, and outputs' beside the values that they are sums
// of, from what the scores have lost. No less than the error itself, however
// large that is.
double FromLostScores(double lost) { return std::expm1(2 * lost); }

// The tolerances are what rounding costs to first order. A row in which it may
// move a score by more has weights of any size, and outputs that are any mean
// of the values: all that FP32 can promise there.
bool IsUnresolved(const Expected& expected, size_t row) {
  return kToleranceFactor * kEps32 * expected.kappa[row] > 0.125;
}

// 0 where either is, also beside infinity: a row of zeros has no error.
double Product(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

// How far out an element is, in tolerances, and never NaN; infinite where NaN
// or an infinity is not what was expected, or its tolerance is NaN.
double Excess(double actual, double expected, double tolerance) {
  if (tolerance == kAnything) return 0;
  if (std::isnan(expected) && std::isnan(actual)) return 0;
  if (actual == expected) return 0;
  if (!std::isfinite(actual) || !std::isfinite(expected) ||
      std::isnan(tolerance)) {
    return kInfinity;
  }
  return std::abs(actual - expected) / tolerance;
}

// Scores of which FP64 itself keeps no more than a few digits after the point:
// computed twice, in another order, they give other weights.
constexpr double kBeyondFp64 = 0x1p30;

// Of a row's sum of weights. What scores lose changes a sink's weight, but not
// the sum of the others where there is none.
double SumTolerance(const Expected& expected, size_t row, double sum) {
  constexpr double kOfNormalisation = 1e-6;
  if (!expected.has_sink[row]) return kOfNormalisation;
  if (IsUnresolved(expected, row)) return 1;
  const double of_scores =
      kToleranceFactor * kEps32 * (1 + 2 * expected.kappa[row]) +
      FromLostScores(expected.lost[row]);
  return kOfNormalisation + Product(of_scores, sum);
}

// Weights before dropout sum to 1 in every row in which a key takes part, less
// what its sink weighs.
::testing::AssertionResult RowsSumToOne(const Expected& expected,
                                        absl::Span<const double> weights) {
  const size_t keys = expected.key_length;
  for (size_t row = 0; row < expected.lse.size(); ++row) {
    if (expected.row_overflows[row] || expected.kappa[row] > kBeyondFp64) {
      continue;
    }
    double sum = 0;
    double wanted = 0;
    for (size_t j = 0; j < keys; ++j) {
      sum += weights[row * keys + j];
      wanted += expected.weights[row * keys + j];
    }
    const double tolerance = SumTolerance(expected, row, wanted);
    if (!(std::abs(sum - wanted) <= tolerance) && !std::isnan(wanted)) {
      return ::testing::AssertionFailure()
             << "weights of row " << row << " sum to " << sum << ", expected "
             << wanted << " within " << tolerance;
    }
  }
  return ::testing::AssertionSuccess();
}

// Of weights, before or after dropout; `part`: which keys have one.
std::vector<double> TolerancesOf(const Expected& expected,
                                 const std::vector<double>& weights,
                                 const std::vector<bool>& part,
                                 double largest_weight) {
  std::vector<double> tolerances(weights.size());
  for (size_t n = 0; n < tolerances.size(); ++n) {
    const size_t row = n / expected.key_length;
    const double weight = weights[n];
    if (expected.row_overflows[row]) tolerances[n] = kAnything;
    // Others are exactly 0.
    if (expected.row_overflows[row] || !part[n]) continue;
    if (IsUnresolved(expected, row)) {
      tolerances[n] = largest_weight;
      continue;
    }
    tolerances[n] =
        kVanishing * largest_weight +
        Product(FromLostScores(expected.lost[row]), weight) +
        kToleranceFactor * kEps32 * weight * (1 + 2 * expected.kappa[row]);
  }
  return tolerances;
}

}  // namespace

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
  const auto keys = static_cast<double>(expected.key_length);
  std::vector<double> tolerances(expected.output.size());
  for (size_t n = 0; n < tolerances.size(); ++n) {
    const size_t row = n / expected.value_width;
    const double o = std::abs(expected.output[n]);
    const double sum = expected.weighted[n] + o;
    // The result, and per key a value, its weight and their product.
    const double vanished =
        SmallestNumber(type) +
        expected.largest_weight * (kVanishing * (1 + keys) +
                                   SmallestWeight(type) * expected.reach[n]);
    tolerances[n] =
        vanished + Product(FromLostScores(expected.lost[row]), sum) +
        kToleranceFactor * (u_out * o + u_in * expected.weighted[n] +
                            kEps32 * Product(2 + expected.kappa[row], sum));
    const bool unresolved = IsUnresolved(expected, row);
    if (unresolved) {
      tolerances[n] += 2 * expected.largest_weight * expected.largest[n];
    }
    if (expected.row_overflows[row] || expected.output_overflows[n] ||
        (std::isfinite(o) ? 1.01 * o >= LargestNumber(type) : unresolved)) {
      tolerances[n] = kAnything;
    }
  }
  return tolerances;
}

std::vector<double> WeightTolerances(const Expected& expected) {
  return TolerancesOf(expected, expected.weights, expected.takes_part,
                      expected.largest_weight);
}

std::vector<double> UndroppedTolerances(const Expected& expected) {
  return TolerancesOf(expected, expected.undropped, expected.counts, 1);
}

std::vector<double> ScoreTolerances(const Expected& expected) {
  std::vector<double> tolerances(expected.scores.size());
  for (size_t n = 0; n < tolerances.size(); ++n) {
    const double score = std::abs(expected.scores[n]);
    tolerances[n] =
        kVanishing + expected.score_lost[n] +
        kToleranceFactor * kEps32 *
            (2 * expected.score_kappa[n] + (std::isfinite(score) ? score : 0));
    if (expected.score_overflows[n]) tolerances[n] = kAnything;
  }
  return tolerances;
}

std::vector<double> LseTolerances(const Expected& expected) {
  std::vector<double> tolerances(expected.lse.size());
  for (size_t n = 0; n < tolerances.size(); ++n) {
    tolerances[n] = expected.lost[n] +
                    kToleranceFactor * kEps32 *
                        (1 + expected.kappa[n] + std::abs(expected.lse[n]));
    if (expected.row_overflows[n]) tolerances[n] = kAnything;
  }
  return tolerances;
}

Expected OfTensorCores(Expected expected) {
  for (double& kappa : expected.kappa) kappa *= 2;
  return expected;
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
    if (excess > worst_excess) {
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
    if (!check) return check;
  }
  return MoreMatches(problem, expected, results);
}

::testing::AssertionResult Matches(const AttentionProblem& problem,
                                   const Results& results) {
  return Matches(problem, ComputeExpected(problem), results);
}

}  // namespace attention::test
