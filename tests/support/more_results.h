#ifndef ATTENTION_TESTS_SUPPORT_MORE_RESULTS_H_
#define ATTENTION_TESTS_SUPPORT_MORE_RESULTS_H_

#include "core/problem.h"
#include "gtest/gtest.h"
#include "tests/support/oracle.h"
#include "tests/support/results.h"

namespace attention::test {

/// top_k, key_weights and scores against the oracle, as far as they are asked
/// for: a part of Matches(). Of top_k, that weights fall, that each is within
/// the tolerance of its key's, that no key was left out that weighs more by
/// more than tolerances, and that keys are told from those that take no part.
/// Where weights before dropout are there, too, that they are the very same.
::testing::AssertionResult MoreMatches(const AttentionProblem& problem,
                                       const Expected& expected,
                                       const Results& results);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_MORE_RESULTS_H_
