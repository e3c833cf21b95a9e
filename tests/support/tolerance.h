#ifndef ATTENTION_TESTS_SUPPORT_TOLERANCE_H_
#define ATTENTION_TESTS_SUPPORT_TOLERANCE_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/problem.h"
#include "core/tensor.h"
#include "gtest/gtest.h"
#include "tests/support/oracle.h"
#include "tests/support/results.h"

namespace attention::test {

/// The constant c of the contract's tolerances: what a backend may lose beyond
/// one rounding of each kind.
inline constexpr double kToleranceFactor = 4;

/// Half the distance between 1 and the next number of the type: 2^-24, 2^-11,
/// 2^-8 for FP32, FP16, BF16.
double UnitRoundoff(DataType type);

/// A tolerance that any answer is within, NaN and infinities too: FP32 may
/// overflow on the way to it.
inline constexpr double kAnything = -1;

/// Per output element o with weights w over values v:
///   c * [u_out |o| + u_in sum(w |v|) + 2^-24 (2 + kappa) sum(w (|v| + |o|))],
/// u_in being 0 for FP32, plus what it may lose because what lies below 2^-126
/// in magnitude may count as 0.
std::vector<double> OutputTolerances(const Expected& expected, DataType type);
/// c * 2^-24 * w * (1 + 2 kappa), and c * 2^-24 * (1 + kappa + |lse|), plus the
/// same.
std::vector<double> WeightTolerances(const Expected& expected);
std::vector<double> LseTolerances(const Expected& expected);
/// Weights' tolerances of those before dropout, which top_k and key_weights are
/// made of.
std::vector<double> UndroppedTolerances(const Expected& expected);
/// c * 2^-24 * (2 kappa + |score|) with the score's own kappa, plus the same.
std::vector<double> ScoreTolerances(const Expected& expected);

/// Whether a tensor has this type and, of a problem of `rank`, the shape whose
/// form of four dimensions is `four`.
::testing::AssertionResult HasShape(const std::string& name,
                                    const Tensor& tensor, DataType type,
                                    Shape four, int rank);

/// What is expected of tensor cores that cut sums off instead of rounding them:
/// the growth g of their errors is twice that of FP32's.
Expected OfTensorCores(Expected expected);

/// Fails, with the element that is furthest out, unless every |actual -
/// expected| <= tolerance. Where NaN or an infinity is expected, only the same
/// will do.
::testing::AssertionResult IsWithin(const std::string& name,
                                    absl::Span<const double> actual,
                                    absl::Span<const double> expected,
                                    absl::Span<const double> tolerances);

/// Every wanted result against the oracle: shapes, types, values, weights
/// exactly 0 where a key takes no part, and rows of weights that sum to 1
/// within 1e-6.
::testing::AssertionResult Matches(const AttentionProblem& problem,
                                   const Expected& expected,
                                   const Results& results);

/// The same, computing what is expected.
::testing::AssertionResult Matches(const AttentionProblem& problem,
                                   const Results& results);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_TOLERANCE_H_
