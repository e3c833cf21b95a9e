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

/// Per output element o with weights w over values v:
///   c * [u_out |o| + u_in sum(w |v|) + 2^-24 kappa (sum(w |v|) + |o|)],
/// u_in being 0 for FP32, plus what underflow costs: the smallest number of the
/// output's type, and weights below FP32's normal range.
std::vector<double> OutputTolerances(const Expected& expected, DataType type);
/// The same for weights (each is an output whose value is 1 at one key), and
/// for lse.
std::vector<double> WeightTolerances(const Expected& expected);
std::vector<double> LseTolerances(const Expected& expected);

/// Fails, with the element that is furthest out, unless every |actual -
/// expected|
/// <= tolerance. Where NaN or an infinity is expected, only the same will do.
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
